package rendezvous

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// visit returns what the agent does: it connects to where a pod waits.
func visit(t *testing.T, dir string) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(dir, Socket), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// wait listens in a new directory and gives every end it is handed to the channel.
func wait(t *testing.T) (string, chan *net.UnixConn) {
	t.Helper()
	dir, ends := t.TempDir(), make(chan *net.UnixConn, 1)
	l, err := Serve(dir, func(c *net.UnixConn) bool {
		select {
		case ends <- c:
			return true
		default:
			return false
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return dir, ends
}

func TestADiskIsHandedOver(t *testing.T) {
	holder, holders := wait(t)
	launcher, launchers := wait(t)
	if err := Introduce(visit(t, holder), visit(t, launcher)); err != nil {
		t.Fatal(err)
	}
	h, l := <-holders, <-launchers
	disk, err := os.CreateTemp(t.TempDir(), "disk")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := disk.WriteString("content"); err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(disk.Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := SendOffer(h, Offer{Volume: "data", Device: true}, disk, reader); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(disk.Name()); err != nil { // nobody needs its name any more
		t.Fatal(err)
	}
	offer, files, err := ReceiveOffer(l)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 2 {
		t.Fatalf("%d files were handed over", len(files))
	}
	for _, file := range files {
		got, err := io.ReadAll(io.NewSectionReader(file, 0, 100))
		if err != nil || string(got) != "content" || offer != (Offer{Volume: "data", Device: true}) {
			t.Errorf("handed over were %+v with %q, %v", offer, got, err)
		}
	}
	if _, err := files[1].WriteString("x"); err == nil {
		t.Error("the second file can be written to")
	}
	for _, a := range []Answer{{Attached: true}, {Released: true}, {Refused: "no room"}} {
		if err := SendAnswer(l, a); err != nil {
			t.Fatal(err)
		}
		if got, err := ReceiveAnswer(h); err != nil || got != a {
			t.Errorf("the holder heard %+v, %v; said was %+v", got, err, a)
		}
	}
	_ = l.Close()
	if _, err := ReceiveAnswer(h); err == nil {
		t.Error("a holder does not notice that the launcher is gone")
	}
}

func TestABusyHolderDeclines(t *testing.T) {
	holder, holders := wait(t)
	launcher, launchers := wait(t)
	if err := Introduce(visit(t, holder), visit(t, launcher)); err != nil {
		t.Fatal(err)
	}
	<-launchers
	if err := Introduce(visit(t, holder), visit(t, launcher)); err == nil {
		t.Error("a holder with company was introduced once more")
	}
	select {
	case <-launchers:
		t.Error("a launcher was given an end that leads nowhere")
	default:
	}
	<-holders
}

func TestAnOfferWithoutADiskIsRefused(t *testing.T) {
	holder, holders := wait(t)
	launcher, launchers := wait(t)
	if err := Introduce(visit(t, holder), visit(t, launcher)); err != nil {
		t.Fatal(err)
	}
	h, l := <-holders, <-launchers
	if err := send(h, Offer{Volume: "data"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReceiveOffer(l); err == nil {
		t.Error("an offer without a disk was taken")
	}
	if _, err := h.Write([]byte("not json")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReceiveOffer(l); err == nil {
		t.Error("nonsense was taken for an offer")
	}
}
