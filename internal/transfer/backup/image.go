package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/zeebo/blake3"
	"golang.org/x/sync/errgroup"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/encode"
	"github.com/berth-vm/berth/internal/transfer/sink"
)

// syncEvery is how many bytes are written before they are made durable and their sums recorded: at most this much is lost in a crash.
const syncEvery = 128 << 20

// failed gives an error of the set its reason.
func failed(what string, err error) error {
	var known *task.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known) && known.Reason != task.DoesNotFit:
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return task.Errorf(task.DoesNotFit, "%s: %w: the place for backups is full; delete old backups or make it larger", what, err)
	}
	return task.Errorf(task.TargetFailed, "%s: %w", what, err)
}

// disk writes the image of a disk, or continues it.
func (w *writer) disk(ctx context.Context, s Source) (Disk, error) {
	source := s.Disk
	if s.Changed != nil {
		below, err := w.parent.disk(s.Name)
		if err != nil {
			return Disk{}, err
		}
		grown := below.Size
		source.Below = &encode.Below{Name: path.Join("..", w.parent.Checkpoint, below.File), Changed: func(ctx context.Context, from, to int64) ([][2]int64, error) {
			return changes(ctx, s, grown, from, to)
		}}
	}
	image, err := encode.QCOW2(ctx, source)
	if err != nil {
		return Disk{}, err
	}
	d := Disk{
		Name: s.Name, Size: (s.Size + 511) &^ 511, Increment: s.Changed != nil, Granularity: granularity, File: s.Name + ".qcow2", Sums: s.Name + ".sums",
		Bytes: image.Size(), Piece: pieceOf(image.Size()),
	}
	d.Digest, err = (&imageWriter{image: image, disk: d}).run(ctx, w.part)
	return d, err
}

// changes are the places that may differ from the parent. What lies behind the parent's end is looked at as a whole: a device that grew may
// hold old data there.
func changes(ctx context.Context, s Source, grown, from, to int64) ([][2]int64, error) {
	places, err := s.Changed(ctx, from, to)
	if begin := max(from, grown); begin < to {
		places = append(places, [2]int64{begin, to - begin})
	}
	return places, err
}

// imageWriter writes one image, piece by piece.
type imageWriter struct {
	image *encode.Image
	disk  Disk
	file  *sink.Sparse
	sums  *os.File
	done  int64 // pieces that are durable and have their sum in the file of sums
	hash  hash.Hash
}

// run writes what is missing and returns the digest of all sums.
func (i *imageWriter) run(ctx context.Context, dir string) (string, error) {
	if err := i.open(dir); err != nil {
		return "", err
	}
	err := i.write(ctx)
	if err = errors.Join(err, failed("close the image", i.file.Close()), failed("close the sums", i.sums.Close())); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(i.hash.Sum(nil)), nil
}

// open opens the image and its sums as an earlier try left them.
func (i *imageWriter) open(dir string) error {
	name := filepath.Join(dir, i.disk.File)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o660)
	if err != nil {
		return failed("make the image", err)
	}
	i.file = sink.NewSparse(f, name)
	info, err := f.Stat()
	if err == nil {
		i.sums, err = os.OpenFile(filepath.Join(dir, i.disk.Sums), os.O_RDWR|os.O_CREATE, 0o660)
	}
	if err != nil {
		return errors.Join(failed("make the sums", err), i.file.Close())
	}
	err = i.takeUp(info.Size())
	if err == nil {
		err = f.Truncate(i.disk.Bytes)
	}
	if err != nil {
		return errors.Join(failed("give the image its size", err), i.file.Close(), i.sums.Close())
	}
	return nil
}

// takeUp counts the sums that an earlier try left of an image of this size.
func (i *imageWriter) takeUp(size int64) error {
	i.hash = sha256.New()
	if size != i.disk.Bytes {
		return i.sums.Truncate(0)
	}
	text, err := io.ReadAll(io.LimitReader(i.sums, i.disk.pieces()*lineSize))
	if err != nil {
		return err
	}
	i.done = int64(len(text)) / lineSize
	i.hash.Write(text[:i.done*lineSize]) // a hash never fails
	return i.sums.Truncate(i.done * lineSize)
}

// writers is how many pieces are under way at a time.
const writers = 3

// write writes the pieces that are missing, some at a time: first they are made durable, then their sums are kept.
func (i *imageWriter) write(ctx context.Context) error {
	free := make(chan []byte, writers)
	for range writers {
		free <- make([]byte, i.disk.Piece)
	}
	for i.done < i.disk.pieces() {
		n := min(i.disk.pieces()-i.done, max(1, syncEvery/i.disk.Piece))
		lines := make([]byte, n*lineSize)
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(writers)
		for k := range n {
			g.Go(func() error {
				if err := ctx.Err(); err != nil {
					return err
				}
				buf := <-free
				defer func() { free <- buf }()
				return i.piece(i.done+k, buf, lines[k*lineSize:][:lineSize])
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		if err := i.file.Sync(); err != nil {
			return failed("flush the image", err)
		}
		if _, err := i.sums.WriteAt(lines, i.done*lineSize); err != nil {
			return failed("write the sums", err)
		}
		if err := i.sums.Sync(); err != nil {
			return failed("flush the sums", err)
		}
		i.hash.Write(lines)
		i.done += n
	}
	return nil
}

// piece writes one piece and its line of the sums.
func (i *imageWriter) piece(number int64, buf, line []byte) error {
	at := number * i.disk.Piece
	p := buf[:min(i.disk.Piece, i.disk.Bytes-at)]
	if n, err := i.image.ReadAt(p, at); n < len(p) {
		return fmt.Errorf("read the disk: %w", err)
	}
	sum := blake3.Sum256(p)
	hex.Encode(line, sum[:])
	line[lineSize-1] = '\n'
	_, err := i.file.WriteAt(p, at)
	return failed("write the image", err)
}
