// Package lazylayer reads a layer of an image at any offset, decompressed, and fetches only the parts that are read. A layer that
// is compressed as a whole gets an index on the first pass over it: places where its decoder can begin again.
//
// It does not know disks, nor its callers. Its promises about bytes:
//
//   - A layer is cut into pieces of half a MiB. The sum of a piece is noted the first time its bytes are seen, and a piece is never handed
//     out with another sum.
//   - The first pass reads the whole layer, in order, and compares its digest. Until then bytes are handed out that are the registry's
//     word and no more ("not yet verified"). If the digest is right, so is every sum, and so is every byte that was ever handed out;
//     what is fetched again later is compared with its sum first.
//   - A layer with a table of contents (zstd:chunked, eStargz) is read by it where the pass has not been. Its parts have the digests that the table
//     names, and the table the one that the manifest names; the pass compares all of it with the layer.
//   - If the digest differs, or the registry gave two answers about one piece, the layer is condemned: every read fails from then on.
//
// The index, the sums and as many pieces as there is room for are kept in a directory, so that only the first process makes the pass.
package lazylayer

import (
	"errors"

	"github.com/berth-vm/berth/internal/transfer/source/retry"
)

// pieceSize is the unit of fetching and caching: a round trip to a registry costs more than to transfer this much.
const pieceSize = 512 << 10

// ErrCondemned is wrapped by the error of every read of a layer whose bytes do not match its digest.
var ErrCondemned = errors.New("the layer is not what its digest says")

// Away reports whether the error of a read is one that may be gone soon.
func Away(err error) bool { return !errors.Is(err, ErrCondemned) && retry.Worth(err) }
