package nbd

import (
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// disk is bytes that fail where they are told to.
type disk struct {
	*bytes.Reader
	bad int64 // reads at this offset fail; -1: none
}

func (d disk) ReadAt(p []byte, off int64) (int, error) {
	if off == d.bad {
		return 0, errors.New("the server is away")
	}
	return d.Reader.ReadAt(p, off)
}

func (d disk) Size() int64 { return d.Reader.Size() }

func content(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7 >> 3)
	}
	return b
}

// client speaks the other half, byte by byte as the specification has it.
type client struct {
	*testing.T
	net.Conn
}

func connect(t *testing.T, d Disk) client {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- Serve(l, d) }()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = c.Close(), l.Close()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	me := client{t, c}
	if hello := me.take(18); string(hello[:16]) != "NBDMAGICIHAVEOPT" || be.Uint16(hello[16:]) != 3 {
		t.Fatalf("greeting %x", hello)
	}
	me.send(0, 0, 0, 3)
	return me
}

func (c client) take(n int) []byte {
	c.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(c, b); err != nil {
		c.Fatal(err)
	}
	return b
}

func (c client) send(b ...byte) {
	c.Helper()
	if _, err := c.Write(b); err != nil {
		c.Fatal(err)
	}
}

func (c client) option(kind uint32, data []byte) {
	c.Helper()
	b := be.AppendUint32([]byte("IHAVEOPT"), kind)
	c.send(append(be.AppendUint32(b, uint32(len(data))), data...)...)
}

// reply returns the kind and the data of the next reply.
func (c client) reply(option uint32) (uint32, []byte) {
	c.Helper()
	head := c.take(20)
	if be.Uint64(head) != magicReply || be.Uint32(head[8:]) != option {
		c.Fatalf("reply %x", head)
	}
	return be.Uint32(head[12:]), c.take(int(be.Uint32(head[16:])))
}

func (c client) ask(command uint16, off uint64, n uint32) {
	c.Helper()
	b := be.AppendUint16(be.AppendUint16(be.AppendUint32(nil, magicAsk), 0), command)
	c.send(be.AppendUint32(be.AppendUint64(be.AppendUint64(b, off^42), off), n)...)
}

// answer returns the code of the next answer and the offset it is for.
func (c client) answer() (code uint32, off uint64) {
	c.Helper()
	head := c.take(16)
	if be.Uint32(head) != magicAnswer {
		c.Fatalf("answer %x", head)
	}
	return be.Uint32(head[4:]), be.Uint64(head[8:]) ^ 42
}

func TestGo(t *testing.T) {
	data := content(3<<20 + 5)
	c := connect(t, disk{bytes.NewReader(data), 1 << 20})
	c.option(5, nil) // STARTTLS
	if kind, _ := c.reply(5); kind != repUnsupported {
		t.Errorf("an option we do not know: %x", kind)
	}
	c.option(optInfo, []byte{0, 0, 0, 9, 0, 0}) // a name longer than its option
	if kind, _ := c.reply(optInfo); kind != repInvalid {
		t.Errorf("a broken option: %x", kind)
	}
	c.option(optGo, []byte{0, 0, 0, 0, 0, 0})
	kind, info := c.reply(optGo)
	if kind != repInfo || be.Uint64(info[2:]) != uint64(len(data)) || be.Uint16(info[10:])&flagReadOnly == 0 {
		t.Fatalf("%x %x", kind, info)
	}
	c.reply(optGo)
	if kind, _ := c.reply(optGo); kind != repAck {
		t.Fatalf("no acknowledgement: %x", kind)
	}
	offsets := []uint64{0, 17, 2 << 20, uint64(len(data)) - 100}
	for _, off := range offsets {
		c.ask(cmdRead, off, 100)
	}
	for range offsets {
		code, off := c.answer()
		if got := c.take(100); code != 0 || !bytes.Equal(got, data[off:off+100]) {
			t.Errorf("at %d: code %d, %x", off, code, got[:8])
		}
	}
	for what, a := range map[string]struct {
		command uint16
		off     uint64
		n       uint32
		want    uint32
	}{
		"a read that fails":         {cmdRead, 1 << 20, 10, errIO},
		"a read beyond the end":     {cmdRead, uint64(len(data)) - 9, 10, errInvalid},
		"a read far beyond the end": {cmdRead, 1<<64 - 1, 10, errInvalid},
		"a read that is too long":   {cmdRead, 0, longestRead + 1, errInvalid},
		"a flush":                   {cmdFlush, 0, 0, 0},
		"a command we do not know":  {77, 0, 0, errInvalid},
	} {
		c.ask(a.command, a.off, a.n)
		if code, _ := c.answer(); code != a.want {
			t.Errorf("%s: code %d, want %d", what, code, a.want)
		}
	}
	c.ask(cmdWrite, 0, 5)
	c.send(1, 2, 3, 4, 5)
	if code, _ := c.answer(); code != errPermission {
		t.Errorf("a write: %d", code)
	}
	c.ask(cmdRead, 0, 1) // the write's data was not taken for requests
	if code, _ := c.answer(); code != 0 || c.take(1)[0] != data[0] {
		t.Error("no answer after a write")
	}
}

func TestExportName(t *testing.T) {
	c := connect(t, disk{bytes.NewReader(content(512)), -1})
	c.option(optList, nil)
	if kind, _ := c.reply(optList); kind != repServer {
		t.Errorf("list: %x", kind)
	}
	c.reply(optList)
	c.option(optExportName, []byte("any"))
	if got := c.take(10); be.Uint64(got) != 512 {
		t.Errorf("size %x", got)
	}
	c.ask(cmdDisconnect, 0, 0)
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("after leaving: %d, %v", n, err)
	}
}

// TestNobodyReads: clients that ask for all they may and read none of the answers do not stop another.
func TestNobodyReads(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	x := &Exports{Lookup: func(string) Disk { return disk{bytes.NewReader(make([]byte, 1<<20)), -1} }}
	done := make(chan error, 1)
	go func() { done <- x.Serve(l) }()
	connect := func() client {
		conn, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		c := client{t, conn}
		c.take(18)
		c.send(0, 0, 0, 3)
		c.option(optGo, []byte{0, 0, 0, 0, 0, 0})
		for kind := uint32(0); kind != repAck; {
			kind, _ = c.reply(optGo)
		}
		return c
	}
	for range mostRequests/atOnce + 3 {
		greedy := connect()
		for range mostRequests + 1 { // more than it may have at a time
			greedy.ask(cmdRead, 0, 256<<10)
		}
	}
	for deadline := time.Now().Add(30 * time.Second); len(x.shared) < mostRequests && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if len(x.shared) < mostRequests {
		t.Fatalf("%d places of %d are taken", len(x.shared), mostRequests)
	}
	c := connect()
	for range 3 {
		c.ask(cmdRead, 0, 3)
		if code, _ := c.answer(); code != 0 {
			t.Fatalf("read: %d", code)
		}
		c.take(3)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// FuzzAnswer: whatever a client sends, the server neither panics nor takes more memory than its bounds.
func TestExports(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	x := &Exports{Lookup: func(name string) Disk {
		if len(name) != 1 {
			return nil
		}
		return disk{bytes.NewReader(bytes.Repeat([]byte(name), 4096)), -1}
	}}
	done := make(chan error, 1)
	go func() { done <- x.Serve(l) }()
	for _, name := range []string{"a", "b"} {
		conn, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c := client{t, conn}
		c.take(18)
		c.send(0, 0, 0, 3)
		c.option(optGo, append([]byte{0, 0, 0, 2}, "xx\x00\x00"...))
		if kind, _ := c.reply(optGo); kind != repUnknown {
			t.Errorf("a name that is nobody's: %#x", kind)
		}
		c.option(optGo, append([]byte{0, 0, 0, 1}, name+"\x00\x00"...))
		for kind := uint32(0); kind != repAck; {
			kind, _ = c.reply(optGo)
		}
		c.ask(cmdRead, 0, 3)
		if code, _ := c.answer(); code != 0 {
			t.Fatalf("read: %d", code)
		}
		if got := string(c.take(3)); got != name+name+name {
			t.Errorf("%s has %q", name, got)
		}
		c.ask(cmdRead, 0, longestShared+1)
		if code, _ := c.answer(); code != errInvalid {
			t.Errorf("a read that is too long: %d", code)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x07\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00" +
		"\x25\x60\x95\x13\x00\x00\x00\x00ABCDEFGH\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10"))
	f.Add([]byte("\x00\x00\x00\x01IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00\x25\x60\x95\x13\x00\x00\x00\x01ABCDEFGH"))
	f.Add([]byte("\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x03\xff\xff\xff\xff"))
	f.Add([]byte("\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00\x25\x60\x95\x13\x00\x01\x00\x01ABCDEFGH" +
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02hi"))
	f.Fuzz(func(_ *testing.T, in []byte) {
		c := struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(in), io.Discard}
		_ = Answer(c, disk{bytes.NewReader(content(4096)), -1})
		c.Reader = bytes.NewReader(in)
		_ = Answer(c, scratch{disk{bytes.NewReader(content(4096)), -1}})
	})
}

// scratch takes writes and forgets them.
type scratch struct{ disk }

func (s scratch) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > s.Size() {
		panic("a write beyond the disk")
	}
	return len(p), nil
}

func (s scratch) Zero(off, n int64) error {
	if off < 0 || off+n > s.Size() {
		panic("zeroes beyond the disk")
	}
	return nil
}

func (s scratch) Flush() error { return nil }
