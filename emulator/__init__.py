"""Back end 1: brings a fabric up in Mininet, shapes it, replays a schedule on live hosts, measures, tears down."""
