package localdisk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-vm/berth/internal/usagetype"
)

// Pools is the driver of a node with all its pools: one for the classes that name no usage type, and one for each type. Every
// call is about one pool, which its volume's handle or its class names, and is answered by that pool's driver.
type Pools struct {
	csi.UnimplementedSnapshotMetadataServer

	main  *Driver
	types map[string]*Driver
}

// OpenPools takes the node's pools. One of a usage type that cannot be taken is not offered, and the log says why: the others
// are of use without it.
func OpenPools(main Settings, types []Settings, version string, log *slog.Logger) (*Pools, error) {
	d, err := Open(main, version, log)
	if err != nil {
		return nil, err
	}
	p := &Pools{main: d, types: map[string]*Driver{}}
	for _, s := range types {
		t, err := Open(s, version, log)
		if err != nil {
			log.Error("a usage type is not offered", "type", s.UsageType, "error", err.Error())
			continue
		}
		p.types[s.UsageType] = t
	}
	return p, nil
}

// Close gives the pools back.
func (p *Pools) Close() error {
	err := p.main.Close()
	for _, t := range p.types {
		err = errors.Join(err, t.Close())
	}
	return err
}

// Server makes a server for the node.
func (p *Pools) Server() *grpc.Server {
	s := grpc.NewServer(grpc.UnaryInterceptor(p.route), grpc.StreamInterceptor(p.main.stream))
	p.main.register(s, p)
	return s
}

// GetMetadataAllocated is answered by the driver of the snapshot's pool.
func (p *Pools) GetMetadataAllocated(r *csi.GetMetadataAllocatedRequest, stream csi.SnapshotMetadata_GetMetadataAllocatedServer) error {
	d, err := p.of(r)
	if err != nil {
		return err
	}
	return d.GetMetadataAllocated(r, stream)
}

// GetMetadataDelta is answered by the driver of the target's pool.
func (p *Pools) GetMetadataDelta(r *csi.GetMetadataDeltaRequest, stream csi.SnapshotMetadata_GetMetadataDeltaServer) error {
	d, err := p.of(r)
	if err != nil {
		return err
	}
	return d.GetMetadataDelta(r, stream)
}

// route has a call answered by the driver of its pool.
func (p *Pools) route(ctx context.Context, request any, info *grpc.UnaryServerInfo, call grpc.UnaryHandler) (any, error) {
	d, err := p.of(request)
	if err != nil {
		if _, asks := request.(*csi.GetCapacityRequest); asks {
			return &csi.GetCapacityResponse{}, nil // there is no room in a pool that is not there
		}
		return nil, err
	}
	if d != p.main {
		method := reflect.ValueOf(d).MethodByName(path.Base(info.FullMethod))
		call = func(ctx context.Context, request any) (any, error) {
			out := method.Call([]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(request)})
			err, _ := out[1].Interface().(error)
			return out[0].Interface(), err
		}
	}
	response, err := d.answer(ctx, request, info, call)
	if place, ok := response.(*csi.NodeGetInfoResponse); ok && err == nil {
		for name := range p.types {
			place.AccessibleTopology.Segments[usagetype.Topology+name] = "true"
		}
	}
	return response, err
}

// of returns the driver of the pool that a call is about: the one its handle names, or the one its class asks for.
func (p *Pools) of(request any) (*Driver, error) {
	if r, ok := request.(interface{ GetParameters() map[string]string }); ok {
		if name := r.GetParameters()[usagetype.Parameter]; name != "" {
			return p.offering(name)
		}
	}
	for _, d := range p.types {
		if slices.Contains(handles(request), d.pool.marker.ID) {
			return d, nil
		}
	}
	return p.main, nil
}

func (p *Pools) offering(name string) (*Driver, error) {
	if d := p.types[name]; d != nil {
		return d, nil
	}
	there := "none"
	if len(p.types) > 0 {
		there = strings.Join(slices.Sorted(maps.Keys(p.types)), ", ")
	}
	return nil, status.Error(codes.ResourceExhausted, fmt.Sprintf("node %s does not offer usage type %s; it offers: %s", p.main.pool.Node, name, there))
}

// handles returns the pools of what a call names. A volume that is made from another names its source in its content.
func handles(request any) []string {
	var names []string
	if r, ok := request.(interface{ GetVolumeId() string }); ok {
		names = append(names, r.GetVolumeId())
	}
	if r, ok := request.(interface{ GetSourceVolumeId() string }); ok {
		names = append(names, r.GetSourceVolumeId())
	}
	if r, ok := request.(interface{ GetSnapshotId() string }); ok {
		names = append(names, r.GetSnapshotId())
	}
	if r, ok := request.(interface{ GetTargetSnapshotId() string }); ok {
		names = append(names, r.GetTargetSnapshotId())
	}
	var pools []string
	for _, name := range names {
		if m := idPattern.FindStringSubmatch(name); m != nil && m[3] != "" {
			pools = append(pools, m[3])
		}
	}
	return pools
}
