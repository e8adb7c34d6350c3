package format_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/testing/formattest"
	"github.com/berth-vm/berth/internal/transfer/format"
)

const sumsPath = "testdata/samples/sums.txt"

func samplePath(name string) string { return filepath.Join("testdata", "samples", name+".gz") }

func readSums(t *testing.T) map[string]string {
	t.Helper()
	p, err := os.ReadFile(sumsPath)
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(p)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		sums[name] = sum
	}
	return sums
}

func readSample(t testing.TB, name string) []byte {
	t.Helper()
	file, err := os.Open(samplePath(name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSamples runs the suite over images that QEMU made. sample_host_test.go makes them again with -update.
func TestSamples(t *testing.T) {
	t.Parallel()
	sums := readSums(t)
	if len(sums) == 0 {
		t.Fatal("there are no samples")
	}
	for name, sum := range sums {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind, _, _ := strings.Cut(name, "-")
			formattest.Suite(t, formattest.Sample{
				Kind: format.Kind(kind), File: readSample(t, name), Sum: sum, Padded: kind == "qcow2",
			})
		})
	}
}

func TestSuiteOnRaw(t *testing.T) {
	t.Parallel()
	disk := bytes.Repeat([]byte("berth"), 40_000)
	d := formattest.NewDisk(int64(len(disk)))
	if err := d.Write(disk, 0); err != nil {
		t.Fatal(err)
	}
	formattest.Suite(t, formattest.Sample{Kind: format.Raw, File: disk, Sum: d.Sum()})
}
