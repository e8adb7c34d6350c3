//go:build e2e

package framework

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// left are the namespaces that tests have deleted.
var left leavings

type leavings struct {
	awaited atomic.Bool // Main will look at them
	mu      sync.Mutex
	envs    []*Env
}

func (l *leavings) add(e *Env) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.envs = append(l.envs, e)
}

// gone waits until they are, and prints those that stay.
func (l *leavings) gone() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	all := true
	for _, e := range l.envs {
		last := ""
		gone := poll(ctx, 3*time.Minute, steady, func(ctx context.Context) bool {
			ns, err := e.Client.CoreV1().Namespaces().Get(ctx, e.Namespace, metav1.GetOptions{})
			if err == nil {
				last = describeNamespace(ns)
			}
			return apierrors.IsNotFound(err)
		})
		if !gone {
			fmt.Fprintf(os.Stderr, "namespace %s does not go away: %s\n", e.Namespace, last)
			all = false
		}
	}
	return all
}

// ends are the functions that AtEnd was given, under left's lock.
var ends []func()

// AtEnd has f called when all tests of the package have ended, last come first served: for servers that tests share.
func AtEnd(f func()) {
	left.mu.Lock()
	defer left.mu.Unlock()
	ends = append(ends, f)
}

// Main runs a package's tests and waits until what they left is gone. A namespace that does not go away is a failure: something in
// it has a finalizer that no controller removes. So is a program in one of the given namespaces whose account lacks a right that
// it needs.
func Main(m *testing.M, programs ...string) {
	left.awaited.Store(true)
	code := m.Run()
	if !left.gone() {
		code = 1
	}
	if len(left.envs) > 0 && lacking(left.envs[0].Client, programs) {
		code = 1
	}
	for i := len(ends) - 1; i >= 0; i-- {
		ends[i]()
	}
	os.Exit(code)
}
