package createvm

import (
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Write writes objects as YAML documents, without what only the API server fills in.
func Write(w io.Writer, objects ...any) error {
	for i, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return fmt.Errorf("write %T: %w", object, err)
		}
		tidy(content)
		text, err := yaml.Marshal(content)
		if err != nil {
			return fmt.Errorf("write %T: %w", object, err)
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// tidy removes empty fields.
func tidy(content map[string]any) {
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(content, "spec", "template", "metadata", "creationTimestamp")
	drop(content, "spec", "template", "metadata")
	drop(content, "spec", "template", "spec", "domain", "resources")
	drop(content, "spec", "resources")
	if group, found, _ := unstructured.NestedFieldNoCopy(content, "spec", "source", "apiGroup"); found && group == nil {
		unstructured.RemoveNestedField(content, "spec", "source", "apiGroup")
	}
	templates, _, _ := unstructured.NestedSlice(content, "spec", "volumeClaimTemplates")
	for _, t := range templates {
		template := t.(map[string]any)
		unstructured.RemoveNestedField(template, "metadata", "creationTimestamp")
		drop(template, "spec", "resources")
	}
	if len(templates) > 0 {
		_ = unstructured.SetNestedSlice(content, templates, "spec", "volumeClaimTemplates") // it was there
	}
}

func drop(content map[string]any, path ...string) {
	if value, found, _ := unstructured.NestedMap(content, path...); found && len(value) == 0 {
		unstructured.RemoveNestedField(content, path...)
	}
}
