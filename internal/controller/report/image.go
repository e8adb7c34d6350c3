package report

// aloneText says why a machine has layers of its own.
func aloneText(why string) string { return "its layers were made for this machine alone: " + why }
