package pattern

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"testing"
)

func TestStreamIsTheSameReadFromAnyOffset(t *testing.T) {
	whole := make([]byte, 1<<12)
	if _, err := Stream(7).ReadAt(whole, 0); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ off, length int64 }{{0, 1}, {1, 7}, {7, 9}, {8, 8}, {13, 1000}, {4000, 96}} {
		got, err := io.ReadAll(io.NewSectionReader(Stream(7), c.off, c.length))
		if err != nil {
			t.Fatal(err)
		}
		if want := whole[c.off : c.off+c.length]; !bytes.Equal(got, want) {
			t.Errorf("bytes %d+%d = %x, want %x", c.off, c.length, got, want)
		}
	}
}

// Guests that were built earlier must keep understanding tests that are written later, so the stream may never change.
func TestStreamNeverChanges(t *testing.T) {
	b := make([]byte, 1<<16)
	for seed, want := range map[Stream]string{
		0: "61232a41c8f3858a2d34791cc4de6f8ce51226ca1816b74d313d73feddbd3804",
		7: "ccf5943c6c514320eb6a681df9e22cf3b6cd7dd90eb1385df4ac01244dc310a7",
	} {
		_, _ = seed.ReadAt(b, 0)
		sum := sha256.Sum256(b)
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Errorf("sha256 of the first 64 KiB of seed %d = %s, want %s", seed, got, want)
		}
	}
}
