package main

import (
	"context"
	"fmt"
	"log/slog"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/berth-vm/berth/driver/internal/localdisk"
)

// registrar answers the kubelet, which finds the socket in its registry and asks who is there.
type registrar struct {
	registerapi.UnimplementedRegistrationServer
	endpoint string
	log      *slog.Logger
	refused  context.CancelCauseFunc
}

// registration makes the server the kubelet asks. If the kubelet refuses the driver, refused is called: starting again
// is the only way to be asked again.
func registration(endpoint string, log *slog.Logger, refused context.CancelCauseFunc) *grpc.Server {
	server := grpc.NewServer()
	registerapi.RegisterRegistrationServer(server, &registrar{endpoint: endpoint, log: log, refused: refused})
	return server
}

// GetInfo returns which driver this is and where it is served.
func (r *registrar) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{
		Type: registerapi.CSIPlugin, Name: localdisk.Name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus receives the kubelet's answer to the registration.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (
	*registerapi.RegistrationStatusResponse, error) {
	if !s.GetPluginRegistered() {
		r.refused(fmt.Errorf("the kubelet refuses the driver: %s", s.GetError()))
	} else {
		r.log.Info("the kubelet knows the driver", "endpoint", r.endpoint)
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}
