package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// request is a line of that record.
type request struct {
	Verb      string `json:"verb"`
	UserAgent string `json:"userAgent"`
	Object    struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Received time.Time `json:"requestReceivedTimestamp"`
}

// what was done to what, and how it came out if it did not succeed.
func (r *request) what() string {
	what := r.Verb + " " + r.Object.Resource
	if r.Object.Subresource != "" {
		what += "/" + r.Object.Subresource
	}
	if r.Response.Code >= 300 {
		what += fmt.Sprintf(", refused with %d", r.Response.Code)
	}
	return what
}

// countWrites returns how often the controller did what since a time.
func countWrites(path string, since time.Time) (map[string]int, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read what was written: %w", err)
	}
	defer f.Close()
	counts := map[string]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("read what was written: %w", err)
		}
		// The program is called controller in every project; everything else here has the name of a part of Kubernetes.
		if strings.HasPrefix(r.UserAgent, "controller/") && r.Received.After(since) {
			counts[r.what()]++
		}
	}
	return counts, lines.Err()
}

// writesPage lists what each controller wrote for a volume.
func writesPage(runs []measured) string {
	var out strings.Builder
	fmt.Fprintf(&out, `# What CDI's controller and ours write for a volume

Counted %s out of the API server's audit log, from the first of %d volumes to the minute after the last is complete. `+"`make bench-control FLAGS=-writes`"+`
writes this page; [peers.md](peers.md) says how it is measured, [the notes](../notes.md) what each of our writes is for.
`, time.Now().Format(time.DateOnly), runs[0].volumes)
	for _, m := range runs {
		fmt.Fprintf(&out, "\n| %s, %s: what | a volume |\n|---|---|\n", m.program.name, m.kindOfClass())
		sum := 0
		for _, what := range slices.Sorted(maps.Keys(m.writes)) {
			sum += m.writes[what]
			fmt.Fprintf(&out, "| %s | %.2f |\n", what, float64(m.writes[what])/float64(m.volumes))
		}
		fmt.Fprintf(&out, "| all | %.2f |\n", float64(sum)/float64(m.volumes))
	}
	return out.String()
}
