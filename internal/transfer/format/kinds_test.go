package format_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/transfer/format"
)

// TestNoFormatIsForgotten: every package of a format is known to Open and to NewDecoder, and there is a sample of it that Detect
// knows.
func TestNoFormatIsForgotten(t *testing.T) {
	dirs, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	sampled := map[format.Kind]bool{}
	for name := range readSums(t) {
		p := readSample(t, name)
		sampled[format.Detect(p[:min(len(p), format.HeadSize)], p[max(0, len(p)-format.TailSize):], int64(len(p)))] = true
	}
	for _, d := range dirs {
		if !d.IsDir() || slices.Contains([]string{"extent", "sequential", "testdata"}, d.Name()) {
			continue
		}
		kind := format.Kind(d.Name())
		const unknown = "Invalid format"
		if _, err := format.Open(kind, strings.NewReader(""), 0); err != nil && strings.Contains(err.Error(), unknown) {
			t.Errorf("Open: %v", err)
		}
		if _, err := format.NewDecoder(kind, nil); err != nil && strings.Contains(err.Error(), unknown) {
			t.Errorf("NewDecoder: %v", err)
		}
		if !sampled[kind] && kind != format.Raw {
			t.Errorf("Detect finds no %s among testdata/samples", kind)
		}
	}
}
