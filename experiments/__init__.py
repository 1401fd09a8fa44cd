"""From a scenario to results, plots and a report, on either back end."""
