"""The numbers of the papers, each made again by Railbed's own code and put beside the published one."""
