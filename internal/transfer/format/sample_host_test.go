//go:build host

package format_test

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "make testdata/samples again")

// samples are the images committed in testdata, for those who have no qemu-img.
var samples = []struct{ name, fmt, options, convert, size string }{
	{"qcow2-plain", "qcow2", "", "", "4M"},
	{"qcow2-small-clusters", "qcow2", "cluster_size=512", "", "1M"},
	{"qcow2-v2", "qcow2", "compat=0.10,cluster_size=4096", "", "2M"},
	{"qcow2-zlib", "qcow2", "cluster_size=16384", "-c", "4M"},
	{"qcow2-zlib-tiny", "qcow2", "cluster_size=512", "-c", "512k"},
	{"qcow2-zstd", "qcow2", "compression_type=zstd", "-c", "4M"},
	{"qcow2-subclusters", "qcow2", "extended_l2=on,cluster_size=16384", "", "4M"},
	{"qcow2-metadata", "qcow2", "preallocation=metadata,cluster_size=4096", "", "1M"},
	{"vmdk-sparse", "vmdk", "", "", "4M"},
	{"vmdk-stream", "vmdk", "subformat=streamOptimized", "-p", "4M"},
	{"vdi-dynamic", "vdi", "", "", "4M"},
	{"vdi-fixed", "vdi", "static=on", "", "2M"},
	{"vhd-dynamic", "vpc", "", "", "6M"},
	{"vhd-fixed", "vpc", "subformat=fixed,force_size=on", "", "1M"},
	{"vhdx-dynamic", "vhdx", "block_size=1M", "", "4M"},
}

func TestSamplesAreWhatQEMUMakes(t *testing.T) {
	sums := readSums(t)
	for _, s := range samples {
		t.Run(s.name, func(t *testing.T) {
			dir := t.TempDir()
			image, disk := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
			if *update {
				sampleImage(t, s.fmt, s.options, s.convert, s.size, image)
				if err := os.WriteFile(samplePath(s.name), pack(t, image), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if err := os.WriteFile(image, readSample(t, s.name), 0o644); err != nil {
				t.Fatal(err)
			}
			run(t, "qemu-img", "convert", "-q", "-f", s.fmt, "-O", "raw", image, disk)
			sum := readDisk(t, disk).Sum()
			if *update {
				sums[s.name] = sum
			}
			if sums[s.name] != sum {
				t.Fatalf("QEMU reads a disk with the sum %s, recorded is %s", sum, sums[s.name])
			}
		})
	}
	if *update {
		var b strings.Builder
		for _, s := range samples {
			fmt.Fprintf(&b, "%s %s\n", sums[s.name], s.name)
		}
		if err := os.WriteFile(sumsPath, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// sampleImage makes a small image with data at its beginning, middle and end, written backwards.
func sampleImage(t *testing.T, kind, options, convert, size, image string) {
	t.Helper()
	var n int64
	var unit string
	if _, err := fmt.Sscanf(size, "%d%s", &n, &unit); err != nil {
		t.Fatal(err)
	}
	n <<= map[string]int{"k": 10, "M": 20}[unit]
	write := []string{
		"-c", fmt.Sprintf("write -q -P 1 %d 3584", n-4096), "-c", fmt.Sprintf("write -q -P 2 %d 1024", n/2),
		"-c", fmt.Sprintf("write -q -P 3 %d 70656", n/4+512), "-c", "write -q -P 4 0 512",
	}
	create := []string{"create", "-q", "-f", kind}
	args := []string{"-O", kind}
	if options != "" {
		create, args = append(create, "-o", options), append(args, "-o", options)
	}
	if convert == "" {
		run(t, "qemu-img", append(create, image, size)...)
		run(t, "qemu-io", append(write, "-f", kind, image)...)
		return
	}
	run(t, "qemu-img", "create", "-q", "-f", "raw", image+".raw", size)
	run(t, "qemu-io", append(write, "-f", "raw", image+".raw")...)
	run(t, "qemu-img", append(append([]string{"convert", convert, "-f", "raw"}, args...), image+".raw", image)...)
}

func pack(t *testing.T, path string) []byte {
	t.Helper()
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(p); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
