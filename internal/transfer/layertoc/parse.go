package layertoc

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// wanted is the file whose parts are looked for, and how large the layer is that they are in.
type wanted struct {
	name        string
	size, layer int64

	parts []Part
	sizes []int64 // as the table says them, 0 where it does not
	end   int64   // where the file ends in the layer, if the table says that
	sum   string  // of the whole file
}

// entry has the needed fields of a table's entry. A file has one of the type reg; one for each of its parts but the first
// follows, of the type chunk.
type entry struct {
	Type        string `json:"type"`
	Name        string `json:"name"`
	Size        int64  `json:"size"`
	Digest      string `json:"digest"`
	Offset      int64  `json:"offset"`
	EndOffset   int64  `json:"endOffset"`
	InnerOffset int64  `json:"innerOffset"`
	ChunkOffset int64  `json:"chunkOffset"`
	ChunkSize   int64  `json:"chunkSize"`
	ChunkDigest string `json:"chunkDigest"`
	ChunkType   string `json:"chunkType"`
}

// parse reads a table to its end, entry by entry.
func (w *wanted) parse(r io.Reader) (*Table, error) {
	d := json.NewDecoder(r)
	if err := w.object(d); err != nil {
		return nil, fmt.Errorf("read the table: %w", err)
	}
	// Read to the end, so that a digest covers all of it.
	if _, err := io.Copy(io.Discard, io.MultiReader(d.Buffered(), r)); err != nil {
		return nil, fmt.Errorf("read the table: %w", err)
	}
	return w.table()
}

func (w *wanted) object(d *json.Decoder) error {
	if err := expect(d, '{'); err != nil {
		return err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		switch key {
		case "version":
			var version int
			if err = d.Decode(&version); err == nil && version != 1 {
				err = fmt.Errorf("it has version %d, and only version 1 is known", version)
			}
		case "entries":
			err = w.entries(d)
		default:
			var skipped json.RawMessage
			err = d.Decode(&skipped)
		}
		if err != nil {
			return err
		}
	}
	return expect(d, '}')
}

func expect(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if err == nil && got != want {
		err = fmt.Errorf("there is %v instead of %s", got, want)
	}
	return err
}

func (w *wanted) entries(d *json.Decoder) error {
	if err := expect(d, '['); err != nil {
		return err
	}
	for d.More() {
		var e entry
		if err := d.Decode(&e); err != nil {
			return err
		}
		if path.Clean("/"+e.Name) == w.name {
			if err := w.take(&e); err != nil {
				return err
			}
		}
	}
	return expect(d, ']')
}

// take notes an entry of the file.
func (w *wanted) take(e *entry) error {
	switch {
	case e.Type == "reg" && w.parts == nil && e.Size == w.size:
		w.end, w.sum = e.EndOffset, e.Digest
	case e.Type == "chunk" && w.parts != nil:
	default:
		return fmt.Errorf("%.200q is there as %.20q with %d bytes, and should be a file of %d, once", e.Name, e.Type, e.Size, w.size)
	}
	if e.InnerOffset != 0 {
		return errors.New("several parts are compressed as one")
	}
	if len(w.parts) == maxParts {
		return fmt.Errorf("the file has more than %d parts", maxParts)
	}
	p := Part{At: e.ChunkOffset, From: e.Offset, Zero: e.ChunkType == "zeros"}
	digest := e.ChunkDigest
	if digest == "" && e.Type == "reg" && (e.ChunkSize == 0 || e.ChunkSize == w.size) {
		digest = e.Digest // there is no other part, which is seen to in the end
	}
	if !p.Zero {
		text, ok := strings.CutPrefix(digest, "sha256:")
		sum, err := hex.DecodeString(text)
		if !ok || err != nil || len(sum) != sha256.Size {
			return fmt.Errorf("a part's digest is %.80q", digest)
		}
		p.Sum = [sha256.Size]byte(sum)
	}
	w.parts, w.sizes = append(w.parts, p), append(w.sizes, e.ChunkSize)
	return nil
}

// table returns what was noted, if it can be true.
func (w *wanted) table() (*Table, error) {
	if len(w.parts) == 0 || w.parts[0].At != 0 {
		return nil, fmt.Errorf("the table does not have the beginning of %s", w.name)
	}
	t := &Table{Size: w.size, Parts: w.parts}
	for i := range t.Parts {
		p := &t.Parts[i]
		size := t.End(i) - p.At
		last := i+1 == len(t.Parts)
		if !last {
			p.To = t.Parts[i+1].From
		} else if p.To = w.layer; w.end > p.From {
			p.To = min(w.end, w.layer)
		}
		switch {
		case size <= 0, w.sizes[i] != 0 && w.sizes[i] != size, w.sizes[i] == 0 && len(t.Parts) > 1 && !last:
			return nil, fmt.Errorf("part %d is %d bytes from %d on, and %d are up to the next", i, w.sizes[i], p.At, size)
		case p.From < 0, p.To > w.layer, p.From >= p.To && !p.Zero, p.From > p.To:
			return nil, fmt.Errorf("part %d is from %d to %d of %d", i, p.From, p.To, w.layer)
		case size > MaxPart && !p.Zero:
			return nil, fmt.Errorf("part %d has %d bytes, more than %d", i, size, MaxPart)
		}
		if !p.Zero { // more than that is not of this part, however badly it compresses
			p.To = min(p.To, p.From+size+size>>6+4<<10)
		}
	}
	return t, nil
}
