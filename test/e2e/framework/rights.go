//go:build e2e

package framework

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// often is how many times a program is refused something before it counts: an API server that has just started refuses everything for a moment.
const often = 10

// refused is how the API server tells a program that its account lacks a right, as programs log it.
var refused = regexp.MustCompile(`User \\*"system:serviceaccount:[a-z-]+:[a-z-]+\\*" cannot [a-z]+ resource \\*"[a-z]+`)

// lacking prints what the programs in these namespaces were refused since their pods run, and reports whether there was anything. This finds
// a right that was taken away and is needed only at a first start.
func lacking(c kubernetes.Interface, namespaces []string) bool {
	ctx := context.Background()
	seen := map[string]int{}
	for _, namespace := range namespaces {
		pods, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			fmt.Fprintf(os.Stderr, "cannot list the pods of %s: %v\n", namespace, err)
			return true
		}
		for _, p := range pods.Items {
			for _, container := range p.Spec.Containers {
				for _, previous := range []bool{false, true} {
					refusals(ctx, c, &p, &corev1.PodLogOptions{Container: container.Name, Previous: previous}, seen)
				}
			}
		}
	}
	lacks := false
	for what, times := range seen {
		if times >= often {
			fmt.Fprintf(os.Stderr, "%d times: %s\n", times, what)
			lacks = true
		}
	}
	return lacks
}

func refusals(ctx context.Context, c kubernetes.Interface, p *corev1.Pod, options *corev1.PodLogOptions, seen map[string]int) {
	log, err := c.CoreV1().Pods(p.Namespace).GetLogs(p.Name, options).Stream(ctx)
	if err != nil {
		return // no earlier container
	}
	defer func() { _ = log.Close() }() // read only
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if found := refused.FindString(lines.Text()); found != "" {
			seen[fmt.Sprintf("pod %s/%s lacks a right: %s", p.Namespace, p.Name, found)]++
		}
	}
}
