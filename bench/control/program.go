package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/simulated"
)

// program is a controller of DataVolumes that is measured.
type program struct {
	name string
	// where its main package is: the module's folder, and the package in it.
	module, main string
	// objects are the objects it needs in the cluster in addition to the common ones.
	objects []client.Object
	start   func(c *simulated.Cluster, path string) (*process, error)
}

// logName is where the program's own words go.
const logName = "controller.log"

var ours = program{name: "Berth", module: ".", main: "./cmd/controller", start: startOurs}

// startController starts the program and waits until it answers.
func startController(ctx context.Context, c *simulated.Cluster, p program, path string) (*process, error) {
	running, err := p.start(c, path)
	if err != nil {
		return nil, err
	}
	return running, wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := running.usage(ctx)
		return err == nil, nil
	})
}

func startOurs(c *simulated.Cluster, path string) (*process, error) {
	ports, err := simulated.FreePorts(2)
	if err != nil {
		return nil, err
	}
	if err := c.Run(logName, nil, path, "--kubeconfig="+c.Kubeconfig, "--controllers=data", "--worker-image=none",
		"--namespace=berth", "--leader-elect=false", "--metrics-address=127.0.0.1:"+ports[0],
		"--health-address=127.0.0.1:"+ports[1]); err != nil {
		return nil, err
	}
	return &process{pid: c.Last().Process.Pid, metrics: "http://127.0.0.1:" + ports[0] + "/metrics"}, nil
}

// theirs is CDI's controller, out of the module that CDI publishes.
var theirs = program{
	name: "CDI", module: filepath.Join("hack", "peers"), main: "kubevirt.io/containerized-data-importer/cmd/cdi-controller",
	start: startTheirs,
	objects: []client.Object{
		namespaceOf("cdi"),
		forklift("OvirtVolumePopulator", "ovirtvolumepopulators"), forklift("OpenstackVolumePopulator", "openstackvolumepopulators"),
		// Its operator would copy the setting from the one to the other.
		&cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: "cdi"}, Spec: cdiv1.CDISpec{Config: &holds}},
		&cdiv1.CDIConfig{ObjectMeta: metav1.ObjectMeta{Name: "config"}, Spec: holds},
	},
}

// holds has CDI wait for the first consumer of a claim, as Berth always does.
var holds = cdiv1.CDIConfigSpec{FeatureGates: []string{"HonorWaitForFirstConsumer"}}

// startTheirs gives CDI's controller the keys that it reads at fixed paths, in a mount namespace of its own.
func startTheirs(c *simulated.Cluster, path string) (*process, error) {
	keys := filepath.Join(c.Dir, "keys")
	if err := writeTokenKeys(keys); err != nil {
		return nil, err
	}
	env := []string{"UPLOADPROXY_SERVICE=cdi-uploadproxy"}
	for _, image := range []string{"IMPORTER_IMAGE", "CLONER_IMAGE", "UPLOADSERVER_IMAGE", "OVIRT_POPULATOR_IMAGE"} {
		env = append(env, image+"=none")
	}
	const mounted = `mkdir -p /var/run/cdi && mount -t tmpfs tmpfs /var/run/cdi && mkdir -p /var/run/cdi/token && cp -r "$1" /var/run/cdi/token/keys && exec "$2" -v=1 -kubeconfig="$3"`
	if err := c.Run(logName, env, "unshare", "-m", "sh", "-ec", mounted, "sh", keys, path, c.Kubeconfig); err != nil {
		return nil, err
	}
	// The last program takes the place of those before it: it has their process number. Its address is fixed.
	return &process{pid: c.Last().Process.Pid, metrics: "https://127.0.0.1:8443/metrics"}, nil
}

// writeTokenKeys makes the pair that CDI signs clones with.
func writeTokenKeys(dir string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return fmt.Errorf("write a key: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make a place for keys: %w", err)
	}
	for name, block := range map[string]*pem.Block{
		"id_rsa":     {Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)},
		"id_rsa.pub": {Type: "PUBLIC KEY", Bytes: public},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return fmt.Errorf("write a key: %w", err)
		}
	}
	return nil
}

// forklift returns the definition of a kind that CDI's controller will not start without, and that no volume here is of.
func forklift(kind, plural string) *apiextensionsv1.CustomResourceDefinition {
	const group = "forklift.cdi.kubevirt.io"
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1beta1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true),
				}},
			}},
		},
	}
}
