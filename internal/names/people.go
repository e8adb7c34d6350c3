package names

import "strings"

// OfPeople reports whether a label or an annotation is a user's, and not one that a program of ours or of Kubernetes reads.
func OfPeople(key string) bool {
	for _, domain := range []string{"berth.dev/", "kubevirt.io/", "kubernetes.io/", "k8s.io/"} {
		if strings.Contains(key, domain) {
			return false
		}
	}
	return true
}
