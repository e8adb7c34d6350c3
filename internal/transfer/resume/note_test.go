package resume

import (
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// TestIdentity: a task continues another if the same bytes come to the same claim, however they come and whatever else is asked for.
func TestIdentity(t *testing.T) {
	task1 := func(change func(*task.Task)) task.Task {
		k := task.Task{Version: task.Version, Volume: "ns/name", Claim: "1", Checksum: "sha256:00",
			Source: task.Source{HTTP: &task.HTTP{URL: "http://a/disk"}}, Target: task.Target{Path: "/data/disk.img", Content: task.Disk, Size: 1 << 30}}
		change(&k)
		return k
	}
	as := identity(task1(func(*task.Task) {}))
	for name, change := range map[string]func(*task.Task){
		"claim":    func(k *task.Task) { k.Claim = "2" },
		"source":   func(k *task.Task) { k.Source.HTTP.URL = "http://b/disk" },
		"kind":     func(k *task.Task) { k.Source = task.Source{S3: &task.S3{URL: "http://a/disk"}} },
		"checksum": func(k *task.Task) { k.Checksum = "sha256:01" },
		"raw":      func(k *task.Task) { k.Raw = true },
		"content":  func(k *task.Task) { k.Target.Content = task.Archive },
	} {
		if identity(task1(change)) == as {
			t.Errorf("another %s is not told", name)
		}
	}
	for name, change := range map[string]func(*task.Task){
		"proxy":       func(k *task.Task) { k.Source.HTTP.HTTPProxy, k.Source.HTTP.NoProxy = "http://proxy", "b" },
		"login":       func(k *task.Task) { k.Source.HTTP.CredentialsDir, k.Source.HTTP.CADir = "/c", "/ca" },
		"headers":     func(k *task.Task) { k.Source.HTTP.Headers = []string{"Authorization: new"} },
		"size":        func(k *task.Task) { k.Target.Size = 2 << 30 },
		"preallocate": func(k *task.Task) { k.Target.Preallocate = true },
		"early":       func(k *task.Task) { k.Early = true },
	} {
		if identity(task1(change)) != as {
			t.Errorf("another %s condemns a disk", name)
		}
	}
	// what a version left that took all of the task for its identity is continued as that version would
	k := task1(func(*task.Task) {})
	now := NewNote(k, source.Info{Version: "v", Size: 1})
	old := now
	old.Task = wholeIdentity(k)
	if ok, _ := now.MayContinue(&old); !ok {
		t.Error("a checkpoint of an earlier version is not continued")
	}
}
