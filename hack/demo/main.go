// Command demo shows the nine steps of a machine on node-local disks as they happen, on the cluster of this checkout: it
// applies examples/vm.yaml with the test guest as its image and narrates what the cluster does. It only looks; everything
// that happens, the controllers do.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// Paths in the checkout, and the address at which pods reach this machine.
const (
	kubeconfig = ".kubebox/kubeconfig"
	guestDir   = "bin/images/guest"
	manifest   = "examples/vm.yaml"
	hostAddr   = "10.77.0.254"
	image      = "guest-compressed.qcow2"
	namespace  = "demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	c, err := connect()
	if err != nil {
		return err
	}
	url, stop, err := serve()
	if err != nil {
		return err
	}
	defer stop()
	vm, err := machine(url)
	if err != nil {
		return err
	}
	if err := fresh(ctx, c); err != nil {
		return err
	}
	s := &story{client: c, vm: vm, start: time.Now(), out: os.Stdout}
	if err := s.tell(ctx); err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, `
Look around:  export KUBECONFIG=%s
              bin/kubectl -n %s get vm,vmi,dv,pvc,pods -o wide
              bin/kubectl -n %s describe vm %s
Done with it: make down
`, kubeconfig, namespace, namespace, vm.Name)
	return nil
}

func connect() (client.WithWatch, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("no cluster here (make up starts one): %w", err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgo.AddToScheme, cdiv1.AddToScheme, kubevirt.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

// serve returns the web server that the image is imported from.
func serve() (url string, stop func(), err error) {
	if _, err := os.Stat(guestDir + "/" + image); err != nil {
		return "", nil, fmt.Errorf("no test guest (make images makes it): %w", err)
	}
	l, err := net.Listen("tcp", hostAddr+":0")
	if err != nil {
		return "", nil, fmt.Errorf("serve the image: %w", err)
	}
	server := &http.Server{Handler: http.FileServer(http.Dir(guestDir)), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }()
	return "http://" + l.Addr().String() + "/" + image, func() { _ = server.Close() }, nil
}

// machine returns the example with our image in it.
func machine(url string) (*kubevirt.VirtualMachine, error) {
	text, err := os.ReadFile(manifest)
	if err != nil {
		return nil, err
	}
	vm := &kubevirt.VirtualMachine{}
	if err := yaml.UnmarshalStrict(text, vm); err != nil {
		return nil, fmt.Errorf("%s: %w", manifest, err)
	}
	vm.Namespace = namespace
	for _, t := range vm.Spec.DataVolumeTemplates {
		if t.Spec.Source.HTTP != nil {
			t.Spec.Source.HTTP.URL = url
		}
	}
	return vm, nil
}

// fresh gives the demo an empty namespace: what an earlier one left is removed first.
func fresh(ctx context.Context, c client.WithWatch) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := c.Delete(ctx, ns.DeepCopy()); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		err := c.Create(ctx, ns.DeepCopy())
		if err == nil {
			return nil
		}
		if !apierrors.IsAlreadyExists(err) && !strings.Contains(err.Error(), "being deleted") {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("namespace %s of an earlier demo does not go away: %w", namespace, ctx.Err())
		}
	}
}
