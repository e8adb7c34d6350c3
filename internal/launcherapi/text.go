package launcherapi

// mostText is how many bytes of a text fit into a report.
const mostText = 2 << 10

// Shorten returns as much of a text as a report has room for.
func Shorten(text string) string {
	if len(text) > mostText {
		return text[:mostText] + "..."
	}
	return text
}
