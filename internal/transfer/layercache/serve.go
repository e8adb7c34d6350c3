package layercache

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/big"
	"net"
	"os"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/imagevm"
	"github.com/berth-vm/berth/internal/transfer/layerdisk"
)

// Limits of one client, of the resources that all share.
const (
	proofs  = 4 // pieces that prove that a layer can be read
	largest = 16 << 30
)

// Pace is the least speed that clients must have.
type Pace struct {
	Idle    time.Duration // without a word
	Slowest int64         // bytes in a second, of a layer that is sent
	Grace   time.Duration // before that counts
	Queue   time.Duration // to wait until the layers of others are made
	Make    time.Duration // for its layer to be made
	Share   time.Duration // of that, if another namespace waits
	Word    time.Duration // between two messages to a waiting client
}

// DefaultPace is the pace of clients on the same node that read from distant registries. A layer of 1 GiB is made in 10 to 20 s.
var DefaultPace = Pace{Idle: 30 * time.Second, Slowest: 64 << 10, Grace: time.Minute, Queue: 2 * time.Minute, Make: 10 * time.Minute, Share: 30 * time.Second,
	Word: 2 * time.Second}

// refusal is an error that is sent to the client.
type refusal struct{ error }

func refuse(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// Serve talks with one asker of a namespace until it leaves.
func (s *Cache) Serve(ctx context.Context, c *net.UnixConn, from string, pace Pace) error {
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	talk := &clientTalk{s: s, c: c, from: from, pace: pace}
	defer talk.end()
	for {
		err := talk.next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			continue
		}
		var told refusal
		if errors.As(err, &told) {
			s.TurnAway()
			_ = talk.say(answer{Refused: told.Error()}, nil)
		}
		return err
	}
}

// clientTalk is the conversation with one asker.
type clientTalk struct {
	s    *Cache
	c    *net.UnixConn
	from string // the asker's namespace
	pace Pace
	at   place
}

func (t *clientTalk) end() {
	for _, f := range t.at.below {
		_ = f.Close()
	}
}

func (t *clientTalk) say(a answer, f *os.File) error {
	if err := t.c.SetWriteDeadline(time.Now().Add(t.pace.Idle)); err != nil {
		return err
	}
	return say(t.c, a, f)
}

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// check returns the error in a request; nil if it is valid.
func (a asked) check(below int) error {
	switch {
	case a.Version != Version:
		return refuse("version %d is spoken here", Version)
	case !digestForm.MatchString(a.Digest):
		return refuse("that is no digest")
	case a.Size <= 0 || a.Size > largest:
		return refuse("layers of up to %d bytes are shared", int64(largest))
	case below >= layerdisk.MaxLayers:
		return refuse("images of up to %d layers are shared", layerdisk.MaxLayers)
	}
	return nil
}

// next answers for one layer. A client that cannot read the layer gets the same answers whether it is there or not: it is asked
// for pieces either way, and then for all of it, unless the pieces are right and the layer is there.
func (t *clientTalk) next(ctx context.Context) error {
	if err := t.c.SetReadDeadline(time.Now().Add(t.pace.Idle)); err != nil {
		return err
	}
	var a asked
	if _, err := hear(t.c, &a, false); err != nil {
		return err
	}
	if err := a.check(len(t.at.below)); err != nil {
		return err
	}
	chain := chainOf(t.at.chain(), a.Digest)
	if a.Ranged && pieces(a.Size) > proofs {
		wanted, err := choose(pieces(a.Size))
		if err != nil {
			return err
		}
		if err := t.say(answer{Pieces: wanted}, nil); err != nil {
			return err
		}
		sums, err := t.proof(a.Size, wanted)
		if err != nil {
			return err
		}
		if k, own := t.s.hold(chain); k != nil {
			if k.proves(a.Size, wanted, sums) {
				return t.hand(k, own, false)
			}
			_ = own.Close()
		}
	}
	return t.receive(ctx, chain, a)
}

// choose picks the pieces to ask for: the last, which in a compressed stream depends on everything before it, and some at random.
func choose(of int64) ([]int64, error) {
	wanted := []int64{of - 1}
	for len(wanted) < proofs {
		n, err := rand.Int(rand.Reader, big.NewInt(of-1))
		if err != nil {
			return nil, err
		}
		if !slices.Contains(wanted, n.Int64()) {
			wanted = append(wanted, n.Int64())
		}
	}
	return wanted, nil
}

// proof reads pieces and sums each up.
func (t *clientTalk) proof(size int64, wanted []int64) ([][]byte, error) {
	var sums [][]byte
	buffer := make([]byte, packet)
	from := t.reader(int64(len(wanted)) * pieceSize)
	for _, n := range wanted {
		h := sha256.New()
		for left := piece(size, n); left > 0; {
			got, err := from.Read(buffer)
			if err != nil {
				return nil, err
			}
			if int64(got) > left {
				return nil, refuse("a piece is too long")
			}
			_, _ = h.Write(buffer[:got])
			left -= int64(got)
		}
		sums = append(sums, h.Sum(nil))
	}
	return sums, nil
}

// reader reads so many bytes, which must come at some pace.
func (t *clientTalk) reader(size int64) paced {
	whole := t.pace.Grace + time.Duration(size/t.pace.Slowest)*time.Second
	return paced{c: t.c, idle: t.pace.Idle, end: time.Now().Add(whole)}
}

// proves reports whether the pieces are the layer's.
func (k *kept) proves(size int64, wanted []int64, sums [][]byte) bool {
	right := k.Blob == size && pieces(size) == int64(len(k.Sums))
	for i, n := range wanted {
		right = right && bytes.Equal(k.Sums[n], sums[i])
	}
	return right
}

// receive has all of a layer sent, checks it, and makes it if it is not there.
func (t *clientTalk) receive(ctx context.Context, chain string, a asked) error {
	blob, err := t.s.begin()
	if err != nil {
		return err
	}
	defer blob.drop()
	// Space is reserved as the bytes come: otherwise an announced size alone would remove the layers of others.
	if a.Size > t.s.bound {
		return refusal{errFull}
	}
	blob.most = a.Size
	if err := t.say(answer{Send: true}, nil); err != nil {
		return err
	}
	n := note{Digest: a.Digest, Blob: a.Size}
	if n.Sums, err = t.spool(blob, a); err != nil {
		return err
	}
	k, own := t.s.hold(chain)
	made := false
	if k == nil {
		if made, err = t.wait(ctx, chain, n, blob, a.Size); err != nil {
			return err
		}
		if k, own = t.s.hold(chain); k == nil {
			return refuse("it was let go at once")
		}
	}
	return t.hand(k, own, made)
}

// spool writes what comes to a file, compares its digest, and gives the sums of its pieces.
func (t *clientTalk) spool(to io.WriterAt, a asked) ([][]byte, error) {
	from, whole, sums := t.reader(a.Size), sha256.New(), &sums{}
	buffer := make([]byte, packet)
	for at := int64(0); at < a.Size; {
		got, err := from.Read(buffer)
		if err != nil {
			return nil, err
		}
		if at+int64(got) > a.Size {
			return nil, refuse("it is longer than was said")
		}
		if _, err := to.WriteAt(buffer[:got], at); err != nil {
			return nil, refusal{err}
		}
		_, _ = whole.Write(buffer[:got])
		sums.add(buffer[:got])
		at += int64(got)
	}
	if "sha256:"+hex.EncodeToString(whole.Sum(nil)) != a.Digest {
		return nil, refuse("it is not what its digest says")
	}
	return sums.all(), nil
}

// sums are the sums of pieces.
type sums struct {
	done [][]byte
	now  hash.Hash
	n    int
}

func (s *sums) add(p []byte) {
	for len(p) > 0 {
		if s.now == nil {
			s.now, s.n = sha256.New(), 0
		}
		part := p[:min(len(p), pieceSize-s.n)]
		_, _ = s.now.Write(part)
		s.n += len(part)
		p = p[len(part):]
		if s.n == pieceSize {
			s.done, s.now = append(s.done, s.now.Sum(nil)), nil
		}
	}
}

func (s *sums) all() [][]byte {
	if s.now != nil {
		s.done, s.now = append(s.done, s.now.Sum(nil)), nil
	}
	return s.done
}

// wait makes a layer, and tells the asker meanwhile that it is worked on.
func (t *clientTalk) wait(ctx context.Context, chain string, n note, blob io.ReaderAt, size int64) (bool, error) {
	type result struct {
		made bool
		err  error
	}
	done := make(chan result, 1)
	go func() {
		made, err := t.s.make(ctx, t, chain, n, io.NewSectionReader(blob, 0, size))
		done <- result{made, err}
	}()
	tick := time.NewTicker(t.pace.Word)
	defer tick.Stop()
	for {
		select {
		case r := <-done:
			if r.err != nil {
				r.err = refusal{r.err}
			}
			return r.made, r.err
		case <-tick.C:
			_ = t.say(answer{Busy: true}, nil) // a client that is gone is noticed at the end; the layer may be useful to others
		}
	}
}

// hold opens a layer that exists, so that it is not removed.
func (s *Cache) hold(chain string) (*kept, *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.layers[chain]
	if k == nil {
		return nil, nil
	}
	f, err := s.open(chain)
	if err != nil {
		return nil, nil
	}
	if !barred(f) {
		return k, f
	}
	s.log.Warn("somebody keeps others from opening a layer: it is made again", "chain", chain)
	_ = f.Close()
	if s.remove(chain) == nil {
		delete(s.layers, chain)
		s.taken -= k.bytes
		s.letGo++
	}
	return nil, nil
}

// barred reports whether a process has locked the file as a writer, or as a user that excludes readers; QEMU trusts such locks.
// QEMU's programs announce the use of an image by locks on these bytes: a reader, as a machine is, locks the first byte of the
// first hundred, and of the second hundred all but the first.
func barred(f *os.File) bool {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: 101, Len: 100}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock) == nil && lock.Type != unix.F_UNLCK
}

// hand gives the layer to the asker, who continues with the one above it.
func (t *clientTalk) hand(k *kept, own *os.File, made bool) error {
	depth := len(t.at.below)
	t.at.below, t.at.over = append(t.at.below, own), append(t.at.over, k.chain)
	t.at.disk = t.at.disk.Over(layerdisk.LayerFile(depth-1), imagevm.LayerName(depth), k.Size)
	t.s.use(t.at.over)
	f, err := t.s.open(k.chain)
	if err != nil {
		return refuse("it cannot be opened")
	}
	defer func() { _ = f.Close() }()
	if !made {
		t.s.mu.Lock()
		t.s.shared++
		t.s.mu.Unlock()
	}
	l := k.Layer
	l.Made = made
	return t.say(answer{Layer: &l}, f)
}
