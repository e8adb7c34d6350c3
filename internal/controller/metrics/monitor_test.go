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

// TestServiceMonitor: the ServiceMonitor finds the Service beside it, and the Service the controller's pods and their port.
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
	var service corev1.Service
	var monitor struct {
		Metadata struct{ Namespace string }
		Spec     struct {
			Selector  struct{ MatchLabels map[string]string }
			Endpoints []struct{ Port string }
		}
	}
	into(parts[0], &service)
	into(parts[1], &monitor)
	var controller appsv1.Deployment
	for _, part := range read("../../../config/controller/deployment.yaml") {
		if bytes.Contains(part, []byte("kind: Deployment")) {
			into(part, &controller)
		}
	}
	if !labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels).Matches(labels.Set(service.Labels)) || monitor.Metadata.Namespace != service.Namespace {
		t.Errorf("the monitor looks for %v, the Service has %v", monitor.Spec.Selector.MatchLabels, service.Labels)
	}
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(controller.Spec.Template.Labels)) || service.Namespace != controller.Namespace {
		t.Errorf("the Service looks for %v, the pods have %v", service.Spec.Selector, controller.Spec.Template.Labels)
	}
	ports := map[string]bool{}
	for _, p := range controller.Spec.Template.Spec.Containers[0].Ports {
		ports[p.Name] = true
	}
	port := service.Spec.Ports[0]
	if len(monitor.Spec.Endpoints) != 1 || monitor.Spec.Endpoints[0].Port != port.Name || !ports[port.TargetPort.String()] {
		t.Errorf("port %v of the Service leads to %s; the pods have %v", port.Name, port.TargetPort.String(), maps.Keys(ports))
	}
}
