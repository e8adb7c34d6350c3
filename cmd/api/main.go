// Command api answers the API groups upload.cdi.kubevirt.io and subresources.kubevirt.io behind the cluster's own API
// server. This file is flags and wiring; the answers are in internal/aggregated.
package main

import (
	"crypto/ed25519"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	kubeversion "k8s.io/apimachinery/pkg/version"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/filters"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/berth-vm/berth/internal/aggregated"
	"github.com/berth-vm/berth/internal/token"
	"github.com/berth-vm/berth/internal/version"
)

type options struct {
	port       int
	tls, seeds string
}

func main() {
	version.Answer()
	var o options
	flag.IntVar(&o.port, "port", 8443, "`port` to listen at")
	flag.StringVar(&o.tls, "tls", "/etc/berth/tls", "`directory` with tls.crt and tls.key")
	flag.StringVar(&o.seeds, "token-seeds", "/etc/berth/token-seeds", "`directory` with the keys of upload tokens")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintf(os.Stderr, "api: %v\n", err)
		os.Exit(1)
	}
}

func run(o options) error {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	config.QPS, config.Burst = 100, 200
	cluster, err := newCluster(config)
	if err != nil {
		return err
	}
	server, err := serve(o)
	if err != nil {
		return err
	}
	answers := &aggregated.Server{
		Cluster: cluster, Key: func(now time.Time) (ed25519.PrivateKey, error) { return signingKey(o.seeds, now) },
		Version: serverVersion(version.Get()), Log: log,
	}
	handler := answers.Handler()
	for _, g := range aggregated.Groups {
		server.Handler.NonGoRestfulMux.Handle("/apis/"+g.Name, handler)
		server.Handler.NonGoRestfulMux.HandlePrefix("/apis/"+g.Name+"/", handler)
		server.DiscoveryGroupManager.AddGroup(g.Document())
		for i, v := range g.Versions {
			server.AggregatedDiscoveryGroupManager.AddGroupVersion(g.Name, g.Aggregated(v))
			server.AggregatedDiscoveryGroupManager.SetGroupVersionPriority(metav1.GroupVersion{Group: g.Name, Version: v}, 1000, 100-i)
		}
	}
	return server.PrepareRun().RunWithContext(ctrl.SetupSignalHandler())
}

// serverVersion returns the version as API servers tell theirs.
func serverVersion(i version.Info) kubeversion.Info {
	return kubeversion.Info{
		GitVersion: i.Version, GitCommit: i.Commit, BuildDate: i.Date, GoVersion: goruntime.Version(), Compiler: goruntime.Compiler,
		Platform: goruntime.GOOS + "/" + goruntime.GOARCH,
	}
}

// linger is how long requests are still taken after the server was told to stop: the cluster goes on sending them here for
// a moment.
const linger = 5 * time.Second

// serve returns an API server without objects: who asks, and whether they may, the cluster's own says.
func serve(o options) (*genericserver.GenericAPIServer, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	unversioned := schema.GroupVersion{Group: "", Version: "v1"}
	scheme.AddUnversionedTypes(unversioned, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{},
		&metav1.APIResourceList{})
	config := genericserver.NewConfig(serializer.NewCodecFactory(scheme))
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.SkipOpenAPIInstallation = true
	config.ShutdownDelayDuration = linger
	config.ExternalAddress = net.JoinHostPort("localhost", fmt.Sprint(o.port))
	config.LongRunningFunc = filters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString("console", "vnc", "portforward"))

	serving := serveroptions.NewSecureServingOptions()
	serving.BindPort = o.port
	serving.ServerCert.CertKey = serveroptions.CertKey{
		CertFile: filepath.Join(o.tls, "tls.crt"), KeyFile: filepath.Join(o.tls, "tls.key"),
	}
	if err := serving.WithLoopback().ApplyTo(&config.SecureServing, &config.LoopbackClientConfig); err != nil {
		return nil, fmt.Errorf("set up the certificate: %w", err)
	}
	authentication := serveroptions.NewDelegatingAuthenticationOptions()
	if err := authentication.ApplyTo(&config.Authentication, config.SecureServing, nil); err != nil {
		return nil, fmt.Errorf("set up who asks: %w", err)
	}
	authorization := serveroptions.NewDelegatingAuthorizationOptions().WithAlwaysAllowPaths("/healthz", "/readyz", "/livez")
	if err := authorization.ApplyTo(&config.Authorization); err != nil {
		return nil, fmt.Errorf("set up who may: %w", err)
	}
	server, err := config.Complete(nil).New("berth-api", genericserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("make the server: %w", err)
	}
	return server, nil
}

// signingKey reads the keys as they are at this moment; they are replaced under way.
func signingKey(dir string, now time.Time) (ed25519.PrivateKey, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the keys of upload tokens: %w", err)
	}
	seeds := token.Seeds{}
	for _, e := range entries {
		if seed, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil {
			seeds[e.Name()] = seed
		}
	}
	return seeds.Key(now)
}
