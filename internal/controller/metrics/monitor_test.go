package metrics

import (
	"bytes"
	"maps"
	"os"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// TestServiceMonitor: each ServiceMonitor finds the Service beside it and no other, and the Service the pods of its program and their port.
func TestServiceMonitor(t *testing.T) {
	read := func(path string) [][]byte {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Split(text, []byte("\n---\n"))
	}
	into := func(text []byte, object any) {
		if err := yaml.Unmarshal(text, object); err != nil {
			t.Fatal(err)
		}
	}
	parts := read(monitoring + "servicemonitor.yaml")
	programs := []string{"controller/deployment.yaml", "uploadproxy/deployment.yaml", "node/daemonset.yaml", "localdisk/base/daemonset.yaml"}
	if len(parts) != 2*len(programs) {
		t.Fatalf("%d objects for %d programs", len(parts), len(programs))
	}
	found := map[string]int{}
	for i, file := range programs {
		var service corev1.Service
		var monitor struct {
			Metadata struct{ Namespace string }
			Spec     struct {
				NamespaceSelector struct{ MatchNames []string }
				Selector          struct{ MatchLabels map[string]string }
				Endpoints         []struct {
					Port, Scheme, BearerTokenFile string
					TLSConfig                     struct {
						InsecureSkipVerify bool
						ServerName         string
					}
				}
			}
		}
		into(parts[2*i], &service)
		into(parts[2*i+1], &monitor)
		looks := monitor.Metadata.Namespace
		if names := monitor.Spec.NamespaceSelector.MatchNames; len(names) == 1 {
			looks = names[0]
		}
		if e := monitor.Spec.Endpoints[0]; e.BearerTokenFile != "" && (e.Scheme != "https" || e.TLSConfig.InsecureSkipVerify || e.TLSConfig.ServerName == "") {
			t.Errorf("%s: Prometheus' token is sent to any server there: %+v", file, e)
		}
		var program appsv1.Deployment // what is looked at, a DaemonSet has too
		for _, part := range read("../../../config/" + file) {
			if bytes.Contains(part, []byte("kind: Deployment")) || bytes.Contains(part, []byte("kind: DaemonSet")) {
				into(part, &program)
			}
		}
		for n := range programs {
			var other corev1.Service
			into(parts[2*n], &other)
			if labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels).Matches(labels.Set(other.Labels)) && looks == other.Namespace {
				found[file]++
			}
		}
		if !labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels).Matches(labels.Set(service.Labels)) || found[file] != 1 {
			t.Errorf("%s: the monitor looks for %v, the Service has %v; it finds %d", file, monitor.Spec.Selector.MatchLabels, service.Labels, found[file])
		}
		if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(program.Spec.Template.Labels)) || service.Namespace != program.Namespace {
			t.Errorf("%s: the Service looks for %v, the pods have %v", file, service.Spec.Selector, program.Spec.Template.Labels)
		}
		ports := map[string]bool{}
		for _, p := range program.Spec.Template.Spec.Containers[0].Ports {
			ports[p.Name] = true
		}
		port := service.Spec.Ports[0]
		if len(monitor.Spec.Endpoints) != 1 || monitor.Spec.Endpoints[0].Port != port.Name || !ports[port.TargetPort.String()] {
			t.Errorf("%s: port %v of the Service leads to %s; the pods have %v", file, port.Name, port.TargetPort.String(), maps.Keys(ports))
		}
	}
}
