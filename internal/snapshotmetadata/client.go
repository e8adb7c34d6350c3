package snapshotmetadata

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// GroupVersion and Resource are of the cluster-wide objects, named as drivers, that say where a driver's service is.
const (
	Group    = "cbt.storage.k8s.io"
	Version  = "v1beta1"
	Resource = "snapshotmetadataservices"
)

// Query names what is asked for.
type Query struct {
	Namespace string // of the snapshot
	Snapshot  string // the VolumeSnapshot
	// Base is the CSI handle of an older snapshot of the same volume, which must still be there (status.snapshotHandle of its
	// VolumeSnapshotContent); empty: which parts of the snapshot have data.
	Base string
	From int64 // the first byte of interest
	// Most is how many ranges a message has at most; 0 leaves it to the driver.
	Most int32
	// Token makes a token for the service's audience. It is asked for again when an answer is continued.
	Token func(context.Context) (string, error)
}

// Range is a part of a volume.
type Range struct{ Offset, Length int64 }

// Client asks one service.
type Client struct{ conn grpc.ClientConnInterface }

// Dial makes a client for the address and authority that a SnapshotMetadataService has; close closes it. It does not connect yet.
func Dial(address string, authority []byte, options ...grpc.DialOption) (c *Client, closes func() error, err error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, nil, errors.New("the SnapshotMetadataService has no certificate authority")
	}
	secret := credentials.NewTLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
	conn, err := grpc.NewClient(address, append([]grpc.DialOption{grpc.WithTransportCredentials(secret)}, options...)...)
	if err != nil {
		return nil, nil, fmt.Errorf("dial %s: %w", address, err)
	}
	return Over(conn), conn.Close, nil
}

// Over makes a client of a connection.
func Over(conn grpc.ClientConnInterface) *Client { return &Client{conn: conn} }

// An answer that breaks off is continued where it ended, unless this number of consecutive attempts brought no data.
const (
	tries = 5
	pause = 200 * time.Millisecond // before the second try, doubled for each further one
)

// Read calls each with the size of the snapshot and the ranges that are found, in order, until all are. It checks that the ranges are in
// order and within the snapshot. With a Base, bytes in no range are as in the base; without, they are zeroes. An error means that
// ranges may be missing.
func (c *Client) Read(ctx context.Context, q Query, each func(capacity int64, found []Range) error) error {
	p := progress{at: q.From, capacity: -1, each: each}
	for failed := 0; ; {
		before := p.at
		err := c.once(ctx, q, &p)
		if err == nil || !interrupted(err) || ctx.Err() != nil {
			return err
		}
		if failed++; p.at > before {
			failed = 1
		}
		if failed == tries {
			return err
		}
		select {
		case <-time.After(pause << (failed - 1)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// interrupted tells whether an answer that ended with an error is worth continuing.
func interrupted(err error) bool {
	switch status.Code(err) { //nolint:exhaustive // all others are final
	case codes.Unavailable, codes.Aborted, codes.ResourceExhausted, codes.DeadlineExceeded:
		return true
	}
	return false
}

// once asks for what is left.
func (c *Client) once(ctx context.Context, q Query, p *progress) error {
	token, err := q.Token(ctx)
	if err != nil {
		return fmt.Errorf("make a token: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stream grpc.ServerStreamingClient[Response]
	if q.Base == "" {
		stream, err = Allocated(ctx, c.conn, &AllocatedRequest{
			SecurityToken: token, Namespace: q.Namespace, SnapshotName: q.Snapshot, StartingOffset: p.at, MaxResults: q.Most,
		})
	} else {
		stream, err = Delta(ctx, c.conn, &DeltaRequest{
			SecurityToken: token, Namespace: q.Namespace, BaseSnapshotID: q.Base, TargetSnapshotName: q.Snapshot, StartingOffset: p.at, MaxResults: q.Most,
		})
	}
	for err == nil {
		var m *Response
		if m, err = stream.Recv(); err == nil {
			err = p.take(m)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Allocated sends a request as it is.
func Allocated(ctx context.Context, conn grpc.ClientConnInterface, r *AllocatedRequest) (grpc.ServerStreamingClient[Response], error) {
	return send(ctx, conn, 0, r)
}

// Delta sends a request as it is.
func Delta(ctx context.Context, conn grpc.ClientConnInterface, r *DeltaRequest) (grpc.ServerStreamingClient[Response], error) {
	return send(ctx, conn, 1, r)
}

func send[R any](ctx context.Context, conn grpc.ClientConnInterface, call int, r *R) (grpc.ServerStreamingClient[Response], error) {
	d := &description.Streams[call]
	stream, err := conn.NewStream(ctx, d, "/"+service+"/"+d.StreamName)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(r); err != nil && !errors.Is(err, io.EOF) { // EOF: the stream has ended, and Recv tells why
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	return &grpc.GenericClientStream[R, Response]{ClientStream: stream}, nil
}

// progress is the position in an answer.
type progress struct {
	at       int64 // everything before is known
	capacity int64 // -1: not yet told
	each     func(int64, []Range) error
}

// take checks a message and passes it on.
func (p *progress) take(m *Response) error {
	if p.capacity < 0 {
		p.capacity = m.VolumeCapacityBytes
	}
	if m.VolumeCapacityBytes != p.capacity || p.capacity < 0 {
		return fmt.Errorf("the driver told a size of %d bytes, then of %d", p.capacity, m.VolumeCapacityBytes)
	}
	found := make([]Range, 0, len(m.BlockMetadata))
	for n, b := range m.BlockMetadata {
		from, to := b.ByteOffset, b.ByteOffset+b.SizeBytes
		if from < 0 || b.SizeBytes <= 0 || to <= p.at || to > p.capacity || n > 0 && from < p.at {
			return fmt.Errorf("the driver told a range of %d bytes at %d, after one that ends at %d, of %d bytes", b.SizeBytes, from, p.at, p.capacity)
		}
		from = max(from, p.at) // the first of an answer may begin before what was asked for
		found = append(found, Range{Offset: from, Length: to - from})
		p.at = to
	}
	return p.each(p.capacity, found)
}
