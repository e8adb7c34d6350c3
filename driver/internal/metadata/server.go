// Package metadata serves the Kubernetes service that tells which blocks of VolumeSnapshots have data or changed, beside a CSI driver
// whose snapshots each belong to a node: it asks whether the caller may read the snapshot, finds its CSI handle, and has the driver
// answer, or the same service on the node that has the snapshot. It keeps to the contract of upstream's external-snapshot-metadata.
// It does not know how a driver finds out what changed.
package metadata

import (
	"context"
	"log/slog"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	wire "github.com/berth-vm/berth/internal/snapshotmetadata"
)

const (
	longest = 10 * time.Minute // an answer; a caller continues one that was cut off
	// forwarded marks a call that came from another node, so that none goes round in circles.
	forwarded = "berth-forwarded"
)

// Server answers for one node.
type Server struct {
	Kube     kubernetes.Interface
	Objects  dynamic.Interface
	CSI      csi.SnapshotMetadataClient // the driver of this node
	Driver   string                     // its name
	Audience string                     // that callers' tokens must be for
	Node     string
	// Peer connects to the service on another node.
	Peer func(ctx context.Context, node string) (conn grpc.ClientConnInterface, closes func() error, err error)
	Log  *slog.Logger

	room room
}

// GRPC makes the gRPC server. Its options have the certificates.
func (s *Server) GRPC(options ...grpc.ServerOption) *grpc.Server {
	g := grpc.NewServer(append(options, grpc.MaxRecvMsgSize(64<<10), grpc.MaxConcurrentStreams(calls), grpc.ConnectionTimeout(10*time.Second))...)
	wire.Register(g, s)
	return g
}

// GetMetadataAllocated tells which parts of a snapshot have data.
func (s *Server) GetMetadataAllocated(r *wire.AllocatedRequest, out wire.Stream) error {
	if r.SnapshotName == "" {
		return status.Error(codes.InvalidArgument, "no snapshot_name is given")
	}
	return s.answer(out, call{
		token: r.SecurityToken, namespace: r.Namespace, snapshot: r.SnapshotName, text: r.String(),
		here: func(ctx context.Context, handle string) (receive, error) {
			stream, err := s.CSI.GetMetadataAllocated(ctx, &csi.GetMetadataAllocatedRequest{
				SnapshotId: handle, StartingOffset: r.StartingOffset, MaxResults: r.MaxResults,
			})
			return converted(stream), err
		},
		there: func(ctx context.Context, conn grpc.ClientConnInterface) (receive, error) {
			return received(wire.Allocated(ctx, conn, r))
		},
	})
}

// GetMetadataDelta tells in which parts a snapshot differs from another one of its volume. The base is known by its CSI handle
// alone. That it is of the same volume, and so of the caller's namespace, the driver checks.
func (s *Server) GetMetadataDelta(r *wire.DeltaRequest, out wire.Stream) error {
	if r.BaseSnapshotID == "" || r.TargetSnapshotName == "" {
		return status.Error(codes.InvalidArgument, "base_snapshot_id and target_snapshot_name must be given")
	}
	return s.answer(out, call{
		token: r.SecurityToken, namespace: r.Namespace, snapshot: r.TargetSnapshotName, text: r.String(),
		here: func(ctx context.Context, handle string) (receive, error) {
			stream, err := s.CSI.GetMetadataDelta(ctx, &csi.GetMetadataDeltaRequest{
				BaseSnapshotId: r.BaseSnapshotID, TargetSnapshotId: handle, StartingOffset: r.StartingOffset, MaxResults: r.MaxResults,
			})
			return converted(stream), err
		},
		there: func(ctx context.Context, conn grpc.ClientConnInterface) (receive, error) {
			return received(wire.Delta(ctx, conn, r))
		},
	})
}

// receive is the next message of an answer.
type receive func() (*wire.Response, error)

// call is the part that both calls have in common.
type call struct {
	token, namespace, snapshot, text string

	here  func(ctx context.Context, handle string) (receive, error)
	there func(ctx context.Context, conn grpc.ClientConnInterface) (receive, error)
}

func (s *Server) answer(out wire.Stream, c call) error {
	ctx, cancel := context.WithTimeout(out.Context(), longest)
	defer cancel()
	err := s.serve(ctx, out, c)
	if err != nil && out.Context().Err() == nil {
		s.Log.Warn("refused", "call", c.text, "code", status.Code(err).String(), "message", err.Error())
	}
	return err
}

func (s *Server) serve(ctx context.Context, out wire.Stream, c call) error {
	if c.namespace == "" || c.token == "" {
		return status.Error(codes.InvalidArgument, "security_token and namespace must be given")
	}
	for _, name := range []string{c.namespace, c.snapshot} {
		if bad := content.IsPathSegmentName(name); len(bad) > 0 {
			return status.Errorf(codes.InvalidArgument, "%q is not a name: %s", name, bad[0])
		}
	}
	user, err := s.allowed(ctx, c.token, c.namespace)
	if err != nil {
		return err
	}
	leave, err := s.room.enter(user)
	if err != nil {
		return err
	}
	defer leave()
	found, err := s.find(ctx, c.namespace, c.snapshot)
	if err != nil {
		return err
	}
	if found.node == "" || found.node == s.Node {
		next, err := c.here(ctx, found.handle)
		return pass(out, next, err)
	}
	if came, _ := metadata.FromIncomingContext(ctx); len(came.Get(forwarded)) > 0 {
		return status.Errorf(codes.Unavailable, "snapshot %s/%s is on node %s, this is node %s", c.namespace, c.snapshot, found.node, s.Node)
	}
	conn, closes, err := s.Peer(ctx, found.node)
	if err != nil {
		return status.Errorf(codes.Unavailable, "snapshot %s/%s is on node %s: %v", c.namespace, c.snapshot, found.node, err)
	}
	defer func() { _ = closes() }()
	// The other node checks the caller's rights itself: it does not trust this one.
	next, err := c.there(metadata.AppendToOutgoingContext(ctx, forwarded, s.Node), conn)
	return pass(out, next, err)
}
