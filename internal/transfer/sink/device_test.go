package sink

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/zeropage"
)

// fakeDevice returns a file of fixed size that is treated like a block device, full of old content.
func fakeDevice(t *testing.T, size int) (string, func() *device) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "device")
	must(t, os.WriteFile(path, bytes.Repeat([]byte("old content "), size/12+1)[:size], 0o600))
	return path, func() *device {
		h, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		d := newDevice(Options{Path: path}, h, int64(size))
		d.zero = d.writeZeroes
		t.Cleanup(func() { _ = d.Close() })
		return d
	}
}

func wantDevice(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	must(t, err)
	if len(got) != len(want) {
		t.Fatalf("the device has %d bytes, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("byte %d of %d is %#x, want %#x", i, len(got), got[i], want[i])
		}
	}
}

func TestDeviceReadsBackAsImageAndZeroes(t *testing.T) {
	for name, size := range map[string]int{"with notes": 9<<20 + 512, "too small for notes": 3 << 20} {
		t.Run(name, func(t *testing.T) {
			path, open := fakeDevice(t, size)
			d := open()
			must(t, d.Begin(int64(size)-1<<20, false))
			want := make([]byte, size)
			copy(want[4096*7+100:], random(50_000, 1))
			copy(want[size-300_000:], random(300_000, 2)) // where notes lie
			write(t, d, want[4096*7+100:100_000], 4096*7+100)
			write(t, d, want[size-300_000:], int64(size-300_000))
			must(t, d.Save([]byte("note")))
			got := make([]byte, 300_000)
			if _, err := d.ReadAt(got, int64(size-300_000)); err != nil || !bytes.Equal(got, want[size-300_000:]) {
				t.Fatalf("what is held back cannot be read: %v", err)
			}
			must(t, d.Finish())
			wantDevice(t, path, want)
		})
	}
}

func TestDeviceNotes(t *testing.T) {
	path, open := fakeDevice(t, 9<<20)
	d := open()
	if n, err := d.Note(); n != nil || err != nil {
		t.Fatalf("a note in old content: %q, %v", n, err)
	}
	must(t, d.Begin(9<<20, false))
	for _, text := range []string{"first", "second", "third"} {
		must(t, d.Save([]byte(text)))
		if n, err := open().Note(); string(n) != text || err != nil {
			t.Fatalf("note %q, %v", n, err)
		}
	}
	h, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	_, err = h.WriteAt([]byte("torn"), d.tail+int64(d.generation%2)*noteSlot+20) // the newest
	must(t, err)
	must(t, h.Close())
	again := open()
	if n, err := again.Note(); string(n) != "second" || err != nil {
		t.Fatalf("after a torn write: note %q, %v", n, err)
	}
	must(t, again.Begin(9<<20, true))
	if err := again.Save(make([]byte, noteSlot)); err == nil {
		t.Fatal("a note larger than its slot was kept")
	}
	must(t, again.Save(nil))
	if n, err := open().Note(); n != nil || err != nil {
		t.Fatalf("after removing it: note %q, %v", n, err)
	}
}

func TestDiscardBeforeBeginChangesNothing(t *testing.T) {
	path, open := fakeDevice(t, 9<<20)
	before, err := os.ReadFile(path)
	must(t, err)
	d := open()
	if n, err := d.Note(); n != nil || err != nil {
		t.Fatalf("note %q, %v", n, err)
	}
	must(t, d.Discard())
	wantDevice(t, path, before)

	file := filepath.Join(t.TempDir(), "disk.img")
	must(t, os.WriteFile(file, before, 0o600))
	must(t, mustOpen(t, Options{Path: file}).Discard())
	wantDevice(t, file, before)
}

func TestDeviceSizes(t *testing.T) {
	_, open := fakeDevice(t, 9<<20)
	var e *task.Error
	if err := open().Begin(9<<20+1, false); !errors.As(err, &e) || e.Reason != task.DoesNotFit {
		t.Errorf("an image larger than the device: %v", err)
	}
	d := open()
	must(t, d.Begin(-1, false))
	write(t, d, random(2<<20, 1), 0)
	write(t, d, random(100_000, 1), 9<<20-100_000)
	must(t, d.Resize(1<<20+700))
	must(t, d.Finish())
	got := make([]byte, 8<<20-700)
	_, err := d.ReadAt(got, 1<<20+700)
	must(t, err)
	if !zeropage.IsZero(got) {
		t.Error("what lies behind the image is not zero")
	}
}

// TestDeviceParksWhatCollides fills a device in random order while most of it is parked on that same device.
func TestDeviceParksWhatCollides(t *testing.T) {
	const size, cluster = 24 << 20, 48 << 10 // clusters that share places
	for seed := range uint64(4) {
		path, open := fakeDevice(t, size)
		d := open()
		must(t, d.Begin(size, false))
		want := make([]byte, size)
		rng := rand.New(rand.NewPCG(seed, 3))
		type parked struct{ at, guest int64 }
		var list []parked
		put := func(guest int64) {
			p := random(cluster, uint64(guest)+seed)
			copy(want[guest:], p)
			write(t, d, p, guest)
		}
		clusters := rng.Perm(size / cluster)[:size/cluster/3]
		for i, c := range clusters {
			guest := int64(c) * cluster
			if i%4 == 0 {
				put(guest)
				continue
			}
			p := random(cluster, uint64(guest)+seed)
			at, err := d.Park(p)
			must(t, err)
			list = append(list, parked{at, guest})
		}
		for _, l := range list {
			p := make([]byte, cluster)
			must(t, d.Parked(p, l.at))
			if !bytes.Equal(p, random(cluster, uint64(l.guest)+seed)) {
				t.Fatalf("seed %d: what was parked at %d came back as something else", seed, l.at)
			}
			copy(want[l.guest:], p)
			write(t, d, p, l.guest)
		}
		must(t, d.Finish())
		wantDevice(t, path, want)
	}
}

// TestDeviceParksEverything parks a whole disk on the device it belongs on, and then places it.
func TestDeviceParksEverything(t *testing.T) {
	const size, cluster = 24 << 20, 64 << 10
	path, open := fakeDevice(t, size)
	d := open()
	must(t, d.Begin(size, false))
	want := random(size, 1)
	clear(want[:1<<20]) // a disk without a hole has no room for the image's own tables
	order := rand.New(rand.NewPCG(1, 1)).Perm(size / cluster)
	var at int64
	for _, c := range order {
		if p := want[c*cluster : (c+1)*cluster]; !zeropage.IsZero(p) {
			_, err := d.Park(p)
			must(t, err)
		}
	}
	p := make([]byte, cluster)
	for _, c := range order {
		if zeropage.IsZero(want[c*cluster : (c+1)*cluster]) {
			continue
		}
		must(t, d.Parked(p, at))
		d.Forget(at, cluster)
		write(t, d, p, int64(c)*cluster)
		at += cluster
	}
	must(t, d.Finish())
	wantDevice(t, path, want)
}

// TestDeviceFindsParkedBytesAfterACrash kills a run between notes, with bytes parked and moved since.
func TestDeviceFindsParkedBytesAfterACrash(t *testing.T) {
	const size = 24 << 20
	path, open := fakeDevice(t, size)
	d := open()
	must(t, d.Begin(size, false))
	want := make([]byte, size)
	copy(want, random(1<<20, 1))
	write(t, d, want[:1<<20], 0)
	first := random(300_001, 2)
	_, err := d.Park(first)
	must(t, err)
	must(t, d.Sync())
	must(t, d.Save([]byte("note")))
	_, err = d.Park(random(2<<20, 3)) // nobody will know of these
	must(t, err)
	write(t, d, random(1<<20, 4), 4<<20)

	again := open()
	if n, err := again.Note(); string(n) != "note" || err != nil {
		t.Fatalf("note %q, %v", n, err)
	}
	if err := again.Unpark(300_002); err == nil {
		t.Fatal("more is said to be parked than was")
	}
	must(t, again.Unpark(300_001))
	must(t, again.Begin(size, true))
	second := random(400_000, 5)
	if at, err := again.Park(second); err != nil || at != 300_001 {
		t.Fatalf("parked at %d, %v", at, err)
	}
	got := make([]byte, 700_001)
	must(t, again.Parked(got, 0))
	if !bytes.Equal(got, append(first, second...)) {
		t.Fatal("what was parked came back as something else")
	}
	must(t, again.Save([]byte("more")))
	write(t, again, random(200_000, 6), size-tailSize-200_000) // the pieces lie there and have to move
	if n, err := open().Note(); n != nil || err != nil {
		t.Fatalf("a note that knows the old places is still there: %q, %v", n, err)
	}
	copy(want[size-tailSize-200_000:], random(200_000, 6))
	must(t, again.Parked(got, 0))
	if !bytes.Equal(got, append(first, second...)) {
		t.Fatal("what was moved came back as something else")
	}
	must(t, again.Finish())
	wantDevice(t, path, want)
}

func TestDeviceRefusesToParkTooMuch(t *testing.T) {
	_, open := fakeDevice(t, 9<<20)
	d := open()
	must(t, d.Begin(9<<20, false))
	write(t, d, random(6<<20, 1), 0)
	var err error
	for range 4 {
		if _, err = d.Park(random(1<<20, 2)); err != nil {
			break
		}
	}
	var e *task.Error
	if !errors.As(err, &e) || e.Reason != task.DoesNotFit {
		t.Fatalf("parked 4 MiB where 3 are free: %v", err)
	}
}
