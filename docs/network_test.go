package docs

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	networking "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// listens are the ports of each part in the table of install.md; a row without a part continues the one before.
func listens(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "| part | listens at |")
	table, _, _ := strings.Cut(rest, "\n\n")
	port := regexp.MustCompile(`\b\d{4,5}\b`)
	ports, part := map[string][]string{}, ""
	for row := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(row, "|")
		if len(cells) < 5 || strings.HasPrefix(row, "|---") {
			continue
		}
		if name := strings.Fields(strings.Trim(strings.TrimSpace(cells[1]), "`")); len(name) > 0 {
			part = strings.Trim(name[0], "`")
			ports[part] = nil
		}
		ports[part] = append(ports[part], port.FindAllString(cells[2], -1)...)
	}
	return ports
}

// TestNetworkPolicies: what install.md says in words, config/network says in objects: each part, and each of its ports.
func TestNetworkPolicies(t *testing.T) {
	want, seen := listens(t), map[string]bool{}
	if len(want) < 6 {
		t.Fatalf("the table has %v", want)
	}
	for _, file := range []string{"../config/network/policies.yaml", "../config/network/tenant/policies.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for one := range strings.SplitSeq(string(text), "\n---\n") {
			var p networking.NetworkPolicy
			if err := yaml.UnmarshalStrict([]byte(one), &p); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			var ports []string
			for _, rule := range p.Spec.Ingress {
				for _, to := range rule.Ports {
					ports = append(ports, to.Port.String())
				}
			}
			documented := slices.Clone(want[p.Name])
			slices.Sort(ports)
			slices.Sort(documented)
			if fmt.Sprint(ports) != fmt.Sprint(documented) || len(p.Spec.PodSelector.MatchLabels) == 0 || !slices.Equal(p.Spec.PolicyTypes, []networking.PolicyType{networking.PolicyTypeIngress}) {
				t.Errorf("%s: %s allows %v, the page says %v", file, p.Name, ports, documented)
			}
			seen[p.Name] = true
		}
	}
	for part := range want {
		if !seen[part] {
			t.Errorf("there is no policy for %s", part)
		}
	}
}
