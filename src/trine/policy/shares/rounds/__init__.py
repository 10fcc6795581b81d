"""From shares of time to who runs where in a round: accounts of time received, priorities, selection."""
