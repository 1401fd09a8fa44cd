"""What the switches are told: routes, rules, and the adapter that speaks OpenFlow."""
