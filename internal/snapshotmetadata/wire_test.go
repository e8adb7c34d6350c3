package snapshotmetadata_test

import (
	"context"
	"encoding/hex"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	meta "github.com/berth-vm/berth/internal/snapshotmetadata"
)

// TestWire: the bytes are those of upstream's schema: these were written manually from its field numbers.
func TestWire(t *testing.T) {
	t.Parallel()
	for want, m := range map[string]protoadapt.MessageV1{
		"0a0174" + "12026e73" + "1a0173" + "2007" + "2803": &meta.AllocatedRequest{
			SecurityToken: "t", Namespace: "ns", SnapshotName: "s", StartingOffset: 7, MaxResults: 3},
		"0a0174" + "12026e73" + "1a0162" + "220173" + "2807" + "3003": &meta.DeltaRequest{
			SecurityToken: "t", Namespace: "ns", BaseSnapshotID: "b", TargetSnapshotName: "s", StartingOffset: 7, MaxResults: 3},
		"0802" + "1064" + "1a0408051006" + "1a04080c1001": &meta.Response{
			BlockMetadataType: meta.VariableLength, VolumeCapacityBytes: 100, BlockMetadata: []*meta.Block{{ByteOffset: 5, SizeBytes: 6}, {ByteOffset: 12, SizeBytes: 1}}},
	} {
		text, err := proto.MarshalOptions{Deterministic: true}.Marshal(protoadapt.MessageV2Of(m))
		if got := hex.EncodeToString(text); err != nil || got != want {
			t.Errorf("%T is %s, want %s (%v)", m, got, want, err)
		}
		if strings.Contains(m.String(), `"t"`) {
			t.Errorf("the token is in %q", m)
		}
	}
}

// said is a service that answers with what a test says, one entry for each call: messages, then an error.
type said struct {
	answers []answer
	asked   []int64 // from where
	tokens  []string
}

type answer struct {
	messages []*meta.Response
	err      error
}

func (s *said) next(token string, from int64, out meta.Stream) error {
	s.asked, s.tokens = append(s.asked, from), append(s.tokens, token)
	a := s.answers[0]
	s.answers = s.answers[1:]
	for _, m := range a.messages {
		if err := out.Send(m); err != nil {
			return err
		}
	}
	return a.err
}

func (s *said) GetMetadataAllocated(r *meta.AllocatedRequest, out meta.Stream) error {
	return s.next(r.SecurityToken, r.StartingOffset, out)
}

func (s *said) GetMetadataDelta(r *meta.DeltaRequest, out meta.Stream) error {
	return s.next(r.SecurityToken, r.StartingOffset, out)
}

// serve makes a client of a service.
func serve(t *testing.T, s meta.Server) *meta.Client {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	meta.Register(server, s)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return meta.Over(conn)
}

func message(blocks ...*meta.Block) *meta.Response {
	return &meta.Response{BlockMetadataType: meta.VariableLength, VolumeCapacityBytes: 100, BlockMetadata: blocks}
}

func at(from, to int64) *meta.Block { return &meta.Block{ByteOffset: from, SizeBytes: to - from} }

// TestRead: an answer that breaks off is continued with a new token where it ended; an end that is not one, or ranges that make no
// sense, are errors: what is missing must never be taken for unchanged.
func TestRead(t *testing.T) {
	t.Parallel()
	away, denied := status.Error(codes.Unavailable, "away"), status.Error(codes.PermissionDenied, "denied")
	for name, row := range map[string]struct {
		answers []answer
		want    []meta.Range
		asked   []int64
		says    string // of the error
	}{
		"in one":           {answers: []answer{{messages: []*meta.Response{message(at(0, 5), at(7, 9)), message(at(9, 12))}}}, want: []meta.Range{{Offset: 0, Length: 5}, {Offset: 7, Length: 2}, {Offset: 9, Length: 3}}, asked: []int64{0}},
		"nothing":          {answers: []answer{{messages: []*meta.Response{message()}}}, asked: []int64{0}},
		"continued":        {answers: []answer{{[]*meta.Response{message(at(0, 5))}, away}, {err: away}, {messages: []*meta.Response{message(at(3, 9))}}}, want: []meta.Range{{Offset: 0, Length: 5}, {Offset: 5, Length: 4}}, asked: []int64{0, 5, 5}},
		"given up":         {answers: []answer{{err: away}, {err: away}, {err: away}, {err: away}, {err: away}}, asked: []int64{0, 0, 0, 0, 0}, says: "away"},
		"refused":          {answers: []answer{{err: denied}}, asked: []int64{0}, says: "denied"},
		"overlapping":      {answers: []answer{{messages: []*meta.Response{message(at(0, 5), at(4, 9))}}}, asked: []int64{0}, says: "a range of 5 bytes at 4"},
		"backwards":        {answers: []answer{{messages: []*meta.Response{message(at(7, 9)), message(at(0, 5))}}}, asked: []int64{0}, want: []meta.Range{{Offset: 7, Length: 2}}, says: "after one that ends at 9"},
		"behind the end":   {answers: []answer{{messages: []*meta.Response{message(at(90, 101))}}}, asked: []int64{0}, says: "of 100 bytes"},
		"empty range":      {answers: []answer{{messages: []*meta.Response{message(at(9, 9))}}}, asked: []int64{0}, says: "of 0 bytes"},
		"negative":         {answers: []answer{{messages: []*meta.Response{message(at(-9, 9))}}}, asked: []int64{0}, says: "at -9"},
		"sizes that wrap":  {answers: []answer{{messages: []*meta.Response{message(&meta.Block{ByteOffset: 1 << 62, SizeBytes: 1<<63 - 1})}}}, asked: []int64{0}, says: "a range"},
		"of another size":  {answers: []answer{{messages: []*meta.Response{message(at(0, 5)), {VolumeCapacityBytes: 50}}}}, asked: []int64{0}, want: []meta.Range{{Offset: 0, Length: 5}}, says: "then of 50"},
		"of negative size": {answers: []answer{{messages: []*meta.Response{{VolumeCapacityBytes: -1}}}}, asked: []int64{0}, says: "bytes"},
	} {
		for _, base := range []string{"", "base"} {
			t.Run(name+base, func(t *testing.T) {
				t.Parallel()
				s := &said{answers: row.answers}
				var got []meta.Range
				n := 0
				err := serve(t, s).Read(t.Context(), meta.Query{Namespace: "ns", Snapshot: "s", Base: base, Token: func(context.Context) (string, error) {
					n++
					return strings.Repeat("t", n), nil
				}}, func(capacity int64, found []meta.Range) error {
					if capacity != 100 {
						t.Errorf("capacity %d", capacity)
					}
					got = append(got, found...)
					return nil
				})
				if (err != nil) != (row.says != "") || err != nil && !strings.Contains(err.Error(), row.says) {
					t.Errorf("%v, want %q", err, row.says)
				}
				if !slices.Equal(got, row.want) || !slices.Equal(s.asked, row.asked) || len(s.tokens) != n {
					t.Errorf("found %v after asking from %v with %d tokens", got, s.asked, n)
				}
			})
		}
	}
}

// TestReadStops: the reader's own error ends the answer and comes back as it is.
func TestReadStops(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	s := &said{answers: []answer{{messages: []*meta.Response{message(at(0, 5)), message(at(7, 9))}}}}
	err := serve(t, s).Read(t.Context(), meta.Query{Token: func(context.Context) (string, error) { return "t", nil }}, func(int64, []meta.Range) error { return enough })
	if !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	if _, _, err := meta.Dial("localhost:1", []byte("none")); err == nil {
		t.Error("dialled without an authority")
	}
}
