package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSummarise(t *testing.T) {
	for _, c := range []struct {
		in   []sample
		want summary
	}{
		{[]sample{{2, 5}}, summary{2, 2, 2, 5}},
		{[]sample{{3, 1}, {1, 9}, {2, 4}}, summary{2, 1, 3, 9}},
		{[]sample{{4, 0}, {1, 0}, {2, 0}, {3, 0}}, summary{2.5, 1, 4, 0}},
	} {
		if diff := cmp.Diff(c.want, summarise(c.in), cmp.AllowUnexported(summary{})); diff != "" {
			t.Error(diff)
		}
	}
}

// made returns a bench in which everyone takes a second, but those named.
func made(seconds map[string]float64) *bench {
	b := &bench{samples: map[string][]sample{}}
	for _, w := range works {
		for _, name := range contenders(w) {
			key := w.letter + "/" + name
			s := 1.0
			if v, ok := seconds[key]; ok {
				s = v
			}
			b.samples[key] = []sample{{seconds: s, rss: 30 << 20}}
		}
	}
	return b
}

func TestOutcomes(t *testing.T) {
	b := made(map[string]float64{"a/qemu-img from http": 3.4, "c/worker": 1.2, "reflink/worker": 0.049})
	b.samples["d/worker"] = []sample{{seconds: 1, rss: 64<<20 + 1}}
	got := map[string]bool{}
	for _, o := range b.outcomes(works) {
		got[o.work+": "+o.text] = o.met
	}
	for text, want := range map[string]bool{
		"a: at least 3.3x qemu-img from http":                   true,
		"a: within 1.9x of inflating its clusters on all cores": true,
		"b: at least 1.8x qemu-img from http":                   false,
		"c: within 1.15x of the loopback read":                  false,
		"e: no slower than curl, xz -T2, dd":                    true,
		"reflink: under 50 ms":                                  true,
		"c: peak RSS at most 64 MiB":                            true,
		"d: peak RSS at most 64 MiB":                            false,
	} {
		if met, ok := got[text]; !ok || met != want {
			t.Errorf("%s: met %v (there: %v), want %v", text, met, ok, want)
		}
	}
}

func TestPlotIsXML(t *testing.T) {
	d := xml.NewDecoder(strings.NewReader(string(made(nil).plot(works))))
	bars := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "line" {
			bars++
		}
	}
	want := 0
	for _, w := range works {
		want += len(contenders(w))
	}
	if bars != want {
		t.Errorf("%d bars, want %d", bars, want)
	}
}

func TestChosen(t *testing.T) {
	for letters, want := range map[string]int{"": len(works), "a": 1, "a,clone": 2, "x": 0} {
		if got := len(chosen(letters)); got != want {
			t.Errorf("%q chooses %d works, want %d", letters, got, want)
		}
	}
}

func TestBesideImporter(t *testing.T) {
	orders := map[string]string{}
	for _, w := range besideImporter(works) {
		_, order, _ := strings.Cut(w.others[0].cmd, "OWNER_UID=bench ")
		orders[w.letter], _, _ = strings.Cut(order, " chroot")
	}
	want := map[string]string{
		"g": `IMPORTER_SOURCE=registry IMPORTER_ENDPOINT="docker://$hub/disk-g:latest"`,
		"h": `IMPORTER_SOURCE=registry IMPORTER_ENDPOINT="docker://$hub/disk-h:latest"`,
	}
	for letter, file := range map[string]string{"a": "a.qcow2", "b": "b.qcow2", "c": "c.raw", "d": "d.raw.gz", "e": "e.raw.xz", "f": "f.raw.zst"} {
		want[letter] = `IMPORTER_SOURCE=http IMPORTER_ENDPOINT="$web/` + file + `"`
	}
	if diff := cmp.Diff(want, orders); diff != "" {
		t.Error(diff)
	}
}
