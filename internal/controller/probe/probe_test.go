package probe

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podAt returns a pod whose server listens where the test's does.
func podAt(t *testing.T, server *httptest.Server, uid types.UID) (*corev1.Pod, int) {
	t.Helper()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: corev1.PodStatus{PodIP: host}}, n
}

// settled returns what is known once the pod has answered.
func settled[T any](t *testing.T, ask func(*corev1.Pod) (T, error), pod *corev1.Pod) (T, error) {
	t.Helper()
	for {
		got, err := ask(pod)
		if !errors.Is(err, ErrNoAnswerYet) {
			return got, err
		}
		<-time.After(time.Millisecond)
	}
}

func TestAt(t *testing.T) {
	elsewhere := 0
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		elsewhere++
		_, _ = w.Write([]byte(`{"far": 42}`))
	}))
	defer other.Close()
	t.Setenv("HTTP_PROXY", other.URL)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			_, _ = w.Write([]byte(`{"far": 42}`))
		case "/endless":
			_, _ = w.Write([]byte(`{"far": 42, "more": "` + strings.Repeat("x", longest)))
		case "/elsewhere":
			http.Redirect(w, r, other.URL, http.StatusFound)
		case "/header":
			w.Header().Set("X", strings.Repeat("x", 2*longest))
			_, _ = w.Write([]byte(`{"far": 42}`))
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	pod, port := podAt(t, server, "a")
	if got, err := settled(t, At[map[string]int](port, "/good"), pod); err != nil || got["far"] != 42 {
		t.Errorf("a good answer: %v, %v", got, err)
	}
	for _, path := range []string{"/endless", "/nothing", "/elsewhere", "/header"} {
		if got, err := settled(t, At[map[string]any](port, path), pod); err == nil || !strings.Contains(err.Error(), server.Listener.Addr().String()+path) {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
	if elsewhere > 0 {
		t.Error("a redirect was followed")
	}
	server.Close()
	if _, err := settled(t, At[map[string]any](port, "/good"), pod); err == nil || !strings.Contains(err.Error(), pod.Status.PodIP) {
		t.Errorf("a pod that is gone: %v", err)
	}
}

// TestAPodThatNeverAnswers costs the caller it nothing, whatever it does, and no one else is given its answer.
func TestAPodThatNeverAnswers(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-release
		_, _ = w.Write([]byte(`{"far": 42}`))
	}))
	defer server.Close()
	defer close(release)
	hung, port := podAt(t, server, "hung")
	next, _ := podAt(t, server, "next") // with the address that the other one had
	ask := At[map[string]int](port, "/")
	start := time.Now()
	for range 1000 {
		for _, pod := range []*corev1.Pod{hung, next} {
			if got, err := ask(pod); !errors.Is(err, ErrNoAnswerYet) {
				t.Fatalf("%s said %v, %v", pod.UID, got, err)
			}
		}
	}
	if took := time.Since(start); took > patience/2 {
		t.Errorf("2000 questions took %s: somebody waited", took)
	}
}

func TestAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Aside[string, int]{Patience: time.Second}
		put, told := 0, 0
		question := func(context.Context) (int, error) { put++; return put, nil }
		never := func(ctx context.Context) (int, error) { put++; <-time.After(time.Hour); return 0, ctx.Err() }
		expect := func(what string, got int, err error, want int, failure string) {
			t.Helper()
			if got != want || (err == nil) != (failure == "") || err != nil && !strings.Contains(err.Error(), failure) {
				t.Errorf("%s: got %d, %v", what, got, err)
			}
			synctest.Wait()
		}
		look := func() (int, error) { return a.Latest("a", question) }
		got, err := look()
		expect("first", got, err, 0, ErrNoAnswerYet.Error())
		got, err = look()
		expect("second", got, err, 1, "")
		got, err = look()
		expect("third", got, err, 2, "")

		once := func(q func(context.Context) (int, error)) (int, error) { return a.Once("b", q, func() { told++ }) }
		got, err = once(question)
		expect("asked", got, err, 0, ErrNoAnswerYet.Error())
		got, err = once(question)
		expect("answered", got, err, 4, "")
		if told != 1 || put != 4 {
			t.Errorf("told %d times, asked %d times", told, put)
		}
		got, err = once(never)
		expect("asked again", got, err, 0, ErrNoAnswerYet.Error())
		<-time.After(2 * time.Second)
		synctest.Wait()
		got, err = once(never)
		expect("given up", got, err, 0, "no answer within 1s")
		for range 3 {
			got, err = once(never)
			expect("while it hangs", got, err, 0, ErrNoAnswerYet.Error())
		}
		if told != 2 || put != 5 {
			t.Errorf("told %d times, asked %d times: a question that hangs is not put again", told, put)
		}
		<-time.After(2 * time.Hour)
		synctest.Wait()
		got, err = once(question)
		expect("after that", got, err, 0, ErrNoAnswerYet.Error())
		if len(a.calls) != 1 {
			t.Errorf("%d are remembered", len(a.calls))
		}
		<-time.After(time.Second)
	})
}
