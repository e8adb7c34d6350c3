package localdisk

import (
	"context"
	"errors"
	"log/slog"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-vm/berth/internal/usagetype"
)

// Name is the driver's name, as storage classes give it.
const Name = usagetype.Driver

// TopologyKey is the label of a node that says whose volumes can be used on it: its own.
const TopologyKey = Name + "/node"

// Driver answers the calls of the CSI specification for one pool. Every call may be repeated, also after a crash.
type Driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	csi.UnimplementedSnapshotMetadataServer

	pool    *pool
	version string
	log     *slog.Logger
	locks   locks
}

// Open takes a directory that is marked as a pool, and undoes or finishes what a crash left. Only one driver can have a pool.
func Open(s Settings, version string, log *slog.Logger) (*Driver, error) {
	p, err := openPool(s, log)
	if err != nil {
		return nil, err
	}
	d := &Driver{pool: p, version: version, log: log}
	if err := p.sweep(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	r, err := p.measure()
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	log.Info("pool is open", "dir", p.Dir, "pool", p.marker.ID, "node", p.Node, "room", r.String())
	if !p.reflink {
		log.Warn("the pool's filesystem cannot share blocks between files: snapshots and clones are copies, "+
			"and only of volumes that are not in use; XFS would make them in a moment", "dir", p.Dir)
	}
	return d, nil
}

// Close gives the pool back. Volumes that are attached or mounted stay so.
func (d *Driver) Close() error { return d.pool.close() }

// register makes a server answer for this driver; what changed between snapshots is asked of metadata.
func (d *Driver) register(s *grpc.Server, metadata csi.SnapshotMetadataServer) {
	csi.RegisterIdentityServer(s, d)
	csi.RegisterControllerServer(s, d)
	csi.RegisterNodeServer(s, d)
	csi.RegisterSnapshotMetadataServer(s, metadata)
}

// Server makes a server for this driver that logs every call that went wrong.
func (d *Driver) Server() *grpc.Server {
	s := grpc.NewServer(grpc.UnaryInterceptor(d.answer), grpc.StreamInterceptor(d.stream))
	d.register(s, d)
	return s
}

// servable refuses calls about volumes while the pool is not there. What was mounted for a pod can be unmounted
// without it, and how much room there is has an answer: none.
func (d *Driver) servable(method string) error {
	switch method {
	case csi.Identity_GetPluginInfo_FullMethodName, csi.Identity_GetPluginCapabilities_FullMethodName,
		csi.Node_NodeUnpublishVolume_FullMethodName, csi.Controller_GetCapacity_FullMethodName:
		return nil
	}
	return d.pool.present()
}

// answer ensures that every error has a code: one without is ours or the machine's fault.
func (d *Driver) answer(ctx context.Context, request any, info *grpc.UnaryServerInfo, call grpc.UnaryHandler) (any, error) {
	response, err := any(nil), d.servable(info.FullMethod)
	if err == nil {
		response, err = call(ctx, request)
	}
	if err == nil {
		return response, nil
	}
	return nil, d.refused(info.FullMethod, err)
}

// stream is answer for calls that are answered with a stream.
func (d *Driver) stream(server any, s grpc.ServerStream, info *grpc.StreamServerInfo, call grpc.StreamHandler) error {
	if err := call(server, s); err != nil {
		return d.refused(info.FullMethod, err)
	}
	return nil
}

func (d *Driver) refused(method string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) { // the caller has left
		return status.FromContextError(err).Err()
	}
	s, coded := status.FromError(err)
	if !coded {
		s = status.New(codes.Internal, err.Error())
	}
	d.log.Warn("refused", "call", method, "code", s.Code().String(), "message", s.Message())
	return s.Err()
}
