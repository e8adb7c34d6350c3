package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/berth-vm/berth/internal/controller/probe"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherexec"
)

func pod(uid types.UID) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "launcher", UID: uid}}
}

// says returns a launcher that answers with this.
func says(text string) func(context.Context, *corev1.Pod, string, remotecommand.StreamOptions) error {
	return func(_ context.Context, _ *corev1.Pod, _ string, s remotecommand.StreamOptions) error {
		_, err := fmt.Fprint(s.Stdout, text)
		return err
	}
}

func TestAnswers(t *testing.T) {
	for name, row := range map[string]struct {
		run   func(context.Context, *corev1.Pod, string, remotecommand.StreamOptions) error
		froze bool
		wrong string
	}{
		"an agent":    {run: says(`{"agent":true,"held":true}`), froze: true},
		"no agent":    {run: says(`{"agent":false}`)},
		"nonsense":    {run: says("hello"), wrong: `read the launcher's answer "hello"`},
		"a failure":   {run: fails, wrong: "no such container: what it printed"},
		"a flood":     {run: floods, wrong: fmt.Sprintf("more than %d bytes", launcherexec.Most)},
		"never":       {run: hangs, wrong: "no answer within 1m0s"},
		"not even so": {run: ignores, wrong: "no answer within 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, told := newExec(row.run), 0
				freeze := func() (bool, error) { return e.Freeze(pod("a"), "snap", func() { told++ }) }
				if _, err := freeze(); !errors.Is(err, probe.ErrNoAnswerYet) {
					t.Fatalf("asked: %v", err)
				}
				<-time.After(launcherapi.MostQuiet + time.Second)
				synctest.Wait()
				froze, err := freeze()
				if froze != row.froze || (err == nil) != (row.wrong == "") || err != nil && !strings.Contains(err.Error(), row.wrong) {
					t.Errorf("got %v, %v", froze, err)
				}
				if told != 1 {
					t.Errorf("told %d times that there is an answer", told)
				}
				<-time.After(24 * time.Hour)
			})
		})
	}
}

func fails(_ context.Context, _ *corev1.Pod, _ string, s remotecommand.StreamOptions) error {
	_, _ = fmt.Fprint(s.Stderr, "what it printed\n")
	return errors.New("no such container")
}

// floods writes as long as the client reads.
func floods(ctx context.Context, _ *corev1.Pod, _ string, s remotecommand.StreamOptions) error {
	block := make([]byte, 64<<10)
	for ctx.Err() == nil {
		if _, err := s.Stdout.Write(block); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func hangs(ctx context.Context, _ *corev1.Pod, _ string, _ remotecommand.StreamOptions) error {
	<-ctx.Done()
	return ctx.Err()
}

// ignores returns a connection that does not even end with its context.
func ignores(context.Context, *corev1.Pod, string, remotecommand.StreamOptions) error {
	<-time.After(12 * time.Hour)
	return nil
}

// TestAHungLauncherIsAloneWithIt: however many hang, the next one is answered, and what a flood says is not kept.
func TestAHungLauncherIsAloneWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newExec(func(ctx context.Context, p *corev1.Pod, verb string, s remotecommand.StreamOptions) error {
			switch {
			case p.UID == "good":
				return says(`{"agent":true,"held":true}`)(ctx, p, verb, s)
			case strings.HasPrefix(string(p.UID), "flood"):
				return floods(ctx, p, verb, s)
			}
			return ignores(ctx, p, verb, s)
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for n := range 500 {
			for _, kind := range []string{"hung", "flood"} {
				uid := types.UID(fmt.Sprint(kind, n))
				if _, err := e.Freeze(pod(uid), uid, func() {}); !errors.Is(err, probe.ErrNoAnswerYet) {
					t.Fatal(err)
				}
			}
		}
		if _, err := e.Freeze(pod("good"), "snap", func() {}); !errors.Is(err, probe.ErrNoAnswerYet) {
			t.Fatal(err)
		}
		synctest.Wait()
		if froze, err := e.Freeze(pod("good"), "snap", func() {}); !froze || err != nil {
			t.Errorf("the one that answers: %v, %v", froze, err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grew := int64(after.HeapAlloc) - int64(before.HeapAlloc); grew > 64<<20 {
			t.Errorf("500 pods that flood us cost %d MiB", grew>>20)
		}
		<-time.After(24 * time.Hour)
	})
}

// TestTwoSnapshotsOfAMachine do not get each other's answers.
func TestTwoSnapshotsOfAMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newExec(says(`{"agent":true,"held":true}`))
		_, _ = e.Freeze(pod("a"), "first", func() {})
		synctest.Wait()
		if _, err := e.Freeze(pod("a"), "second", func() {}); !errors.Is(err, probe.ErrNoAnswerYet) {
			t.Errorf("the second has the first's answer: %v", err)
		}
		synctest.Wait()
	})
}
