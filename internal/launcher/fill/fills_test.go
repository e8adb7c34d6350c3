package fill

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/launcher/disks"
	"github.com/berth-vm/berth/internal/launcher/progress"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// filling is a QEMU whose job brings 10 parts a second, and a guest that does what the test says.
type filling struct {
	*fills
	now   time.Time
	job   string // the volume of the job that runs
	held  bool
	parts map[string]int64
	does  int64 // operations of the guest a second
	ops   int64
	fails bool // the master is away
	gone  []string
	said  *progress.Copies
}

const wholeMaster = 100

func newFilling(volumes ...string) *filling {
	f := &filling{now: time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC), parts: map[string]int64{}, said: progress.New()}
	f.said.File = func(string) string { return "/nonexistent" }
	f.fills = &fills{job: f, log: slog.New(slog.DiscardHandler), queue: volumes, note: f.said.Change,
		done: func(volume string) { f.gone = append(f.gone, volume) }}
	return f
}

func (f *filling) start(volume string) error {
	if f.job != "" {
		return errors.New("there is a job already")
	}
	f.job = volume
	return nil
}

func (f *filling) look(volume string) (bool, int64, int64, error) {
	return f.job == volume, f.parts[volume], wholeMaster, nil
}

func (f *filling) alone(volume string) (bool, error) { return f.parts[volume] >= wholeMaster, nil }
func (f *filling) hold(pause bool) error             { f.held = pause; return nil }
func (f *filling) operations() (int64, error)        { return f.ops, nil }

func (f *filling) pass(seconds int) {
	for range seconds {
		f.now = f.now.Add(time.Second)
		f.ops += f.does
		if f.job != "" && !f.held {
			f.parts[f.job] += 10
			if f.parts[f.job] >= wholeMaster || f.fails {
				f.job, f.held = "", false
			}
		}
		f.fills.look(f.now)
	}
}

// TestFills: copies are filled one after the other while the guest does next to nothing, not while it is busy, and their masters
// are closed when the copies are complete and not before.
func TestFills(t *testing.T) {
	f := newFilling("a", "b")
	f.does = 1000
	f.pass(30)
	if f.job != "" || len(f.parts) != 0 {
		t.Fatalf("a copy is filled while the guest is busy: %q %v", f.job, f.parts)
	}
	f.does = 3
	f.pass(6)
	if f.job != "a" || f.parts["a"] == 0 || len(f.gone) != 0 {
		t.Fatalf("after some idle seconds: %q %v %v", f.job, f.parts, f.gone)
	}
	f.does = 1000
	f.pass(1)
	had := f.parts["a"]
	f.pass(20)
	if f.parts["a"] != had || !f.held {
		t.Errorf("it goes on under the guest's load: %d, then %d", had, f.parts["a"])
	}
	if c := f.said.Now()["a"]; c.LetGo || c.Done != had || c.Total != wholeMaster {
		t.Errorf("it says %+v", c)
	}
	f.does = 0
	f.pass(60)
	if !slices.Equal(f.gone, []string{"a", "b"}) || f.job != "" {
		t.Errorf("let go: %v, job %q", f.gone, f.job)
	}
	if got := f.said.Now(); got["a"] != (launcherapi.Copy{Done: wholeMaster, Total: wholeMaster, LetGo: true}) || got["b"] != got["a"] {
		t.Errorf("it says %+v", got)
	}
}

// TestFillFails: a master that does not answer is tried again, and is not closed.
func TestFillFails(t *testing.T) {
	f := newFilling("a")
	f.fails = true
	f.pass(10)
	if len(f.gone) != 0 || f.said.Now()["a"].LetGo {
		t.Fatal("a master is let go that the copy has not")
	}
	f.fails = false
	f.pass(60)
	if !slices.Equal(f.gone, []string{"a"}) {
		t.Errorf("let go: %v with %v", f.gone, f.parts)
	}
}

// TestMeter reads what qemu-img prints, however it is cut.
func TestMeter(t *testing.T) {
	var got []int64
	m := &disks.Meter{Say: func(n int64) { got = append(got, n) }}
	for _, text := range []string{"    (0.00/100%)\r", "    (12.", "34/100%)\r    (13.00/100%)\r", "    (100.00/100%)\r", "\n"} {
		if _, err := m.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, []int64{0, 1300, 10000}) {
		t.Errorf("read %v", got)
	}
}

// TestAlone reads what libvirt 9.0 says of a copy before and after its master was brought in.
func TestAlone(t *testing.T) {
	disk := func(under string) string {
		return `<domain><devices><disk type='file' device='disk'><driver name='qemu' type='qcow2' copy_on_read='on'/>
			<source file='/copy' index='1'><slices><slice type='storage' offset='0' size='73400320'/></slices></source>` + under +
			`<target dev='vda' bus='virtio'/></disk></devices></domain>`
	}
	for under, want := range map[string]bool{
		`<backingStore/>`: true,
		``:                false,
		`<backingStore type='file' index='2'><format type='raw'/><source file='/master'/><backingStore/></backingStore>`:                                     false,
		`<backingStore type='network' index='2'><format type='raw'/><source protocol='nbd' name='e'><host name='h'/></source><backingStore/></backingStore>`: false,
	} {
		if got, err := aloneIn(disk(under), "/copy"); err != nil || got != want {
			t.Errorf("%s: %v, %v", under, got, err)
		}
	}
	if _, err := aloneIn(disk(""), "/other"); err == nil {
		t.Error("a disk that is not there lies over something")
	}
}
