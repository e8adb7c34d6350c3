package machine

import (
	"fmt"
	"slices"
	"testing"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var instanceAxes = []enumerate.Axis[Facts]{
	{Count: 2, Set: func(f *Facts, i int) string { f.Leaving = i == 1; return either(i, "stays", "leaves") }},
	{Count: int(Going) + 1, Set: func(f *Facts, i int) string { f.Launcher = Pod(i); return f.Launcher.String() }},
	{Count: 3, Set: func(f *Facts, i int) string { f.Others = []Pod{NoPod, Placed, Going}[i]; return f.Others.String() }},
	{Count: int(PastBadly) + 1, Set: func(f *Facts, i int) string { f.Past = Past(i); return f.Past.String() }},
	{Count: int(Failed) + 1, Set: func(f *Facts, i int) string { f.Disks = Disks(i); return f.Disks.String() }},
	{Count: int(LoggedIn) + 1, Set: func(f *Facts, i int) string { f.Access = Access(i); return f.Access.String() }},
	{Count: int(Going) + 1, Set: func(f *Facts, i int) string { f.Consumer = Pod(i); return f.Consumer.String() }},
	{Count: 2, Set: func(f *Facts, i int) string { f.Unsupported = i == 1; return either(i, "plain", "unsupported") }},
	{Count: 2, Set: func(f *Facts, i int) string { f.Nominated = i == 1; return either(i, "unpromised", "promised") }},
	{Count: 2, Set: func(f *Facts, i int) string { f.Released = i == 1; return either(i, "told-to-wait", "told-to-go") }},
}

var strategies = []kubevirt.RunStrategy{
	kubevirt.RunAlways, kubevirt.RunHalted, kubevirt.RunManual, kubevirt.RunRerunOnFailure, kubevirt.RunOnce}

var machineAxes = []enumerate.Axis[RunFacts]{
	{Count: 2, Set: func(f *RunFacts, i int) string { f.Leaving = i == 1; return either(i, "stays", "leaves") }},
	{Count: int(Stranger) + 1, Set: func(f *RunFacts, i int) string {
		f.Instance = Instances(i)
		return name(f.Instance, "NoInstance", "Living", "EndedWell", "EndedBadly", "Departing", "Stranger")
	}},
	{Count: int(StartPausedAsked) + 1, Set: func(f *RunFacts, i int) string {
		f.Request = Request(i)
		return name(f.Request, "NoRequest", "StartAsked", "StopAsked", "RestartAsked", "StartPausedAsked")
	}},
	{Count: len(strategies), Set: func(f *RunFacts, i int) string { f.Strategy = strategies[i]; return string(f.Strategy) }},
	{Count: 2, Set: func(f *RunFacts, i int) string { f.RetryDue = i == 1; return either(i, "pausing", "due") }},
	{Count: 2, Set: func(f *RunFacts, i int) string { f.Served = i == 1; return either(i, "new", "served") }},
	{Count: int(VolumeAwaited) + 1, Set: func(f *RunFacts, i int) string { f.Means = Means(i); return f.Means.String() }},
	{Count: 3, Set: func(f *RunFacts, i int) string { f.Disks = []Disks{Ready, Failing, Failed}[i]; return f.Disks.String() }},
}

var hotAxes = []enumerate.Axis[HotFacts]{
	{Count: 2, Set: func(f *HotFacts, i int) string { f.Wanted = i == 1; return either(i, "removed", "wanted") }},
	{Count: int(Failed) + 1, Set: func(f *HotFacts, i int) string { f.Disk = Disks(i); return f.Disk.String() }},
	{Count: int(Partly) + 1, Set: func(f *HotFacts, i int) string { f.Access = Access(i); return f.Access.String() }},
	{Count: int(Going) + 1, Set: func(f *HotFacts, i int) string { f.Consumer = Pod(i); return f.Consumer.String() }},
	{Count: int(Going) + 1, Set: func(f *HotFacts, i int) string { f.Holder = Pod(i); return f.Holder.String() }},
	{Count: 2, Set: func(f *HotFacts, i int) string { f.Kept = i == 1; return either(i, "yields", "keeps") }},
}

func either(i int, no, yes string) string {
	if i == 1 {
		return yes
	}
	return no
}

func line(p Plan) string { return fmt.Sprintf("%s %v", p.State, p.Do) }

func TestInstanceTable(t *testing.T) {
	golden.Equal(t, "testdata/instance.txt", "# life launcher others past disks access consumer fields promise order -> state [actions]\n"+
		enumerate.Table(instanceAxes, func(f Facts) string { return line(Instance(f)) }))
}

func TestMachineTable(t *testing.T) {
	golden.Equal(t, "testdata/machine.txt", "# life instance request strategy pause served means disks -> state [actions]\n"+
		enumerate.Table(machineAxes, func(f RunFacts) string { return line(Run(f)) }))
}

func TestHotplugTable(t *testing.T) {
	golden.Equal(t, "testdata/hotplug.txt", "# volume disk access consumer holder guest -> phase reason [actions]\n"+
		enumerate.Table(hotAxes, func(f HotFacts) string {
			p := Hotplug(f)
			return fmt.Sprintf("%s %s %v", p.Phase, p.Reason, p.Do)
		}))
}

func TestHotplugInvariants(t *testing.T) {
	enumerate.Every(hotAxes, func(f HotFacts) {
		p := Hotplug(f)
		does := func(a Action) bool { return slices.Contains(p.Do, a) }
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		if does(StopHolder) && f.Holder == Up {
			fail("a disk is taken from under the guest")
		}
		if does(StartHolder) && (f.Disk != Ready && f.Disk != Unbound || !f.Wanted) {
			fail("a disk without its data is handed over")
		}
		if does(StartHotConsumer) && f.Disk != Held {
			fail("a consumer nobody needs")
		}
		if p.Reason == GuestKeepsIt && (f.Wanted || f.Holder != Up || !f.Kept) {
			fail("the guest is blamed for nothing")
		}
		if (p.Phase == kubevirt.VolumeReady) != (f.Wanted && f.Holder == Up) {
			fail("ready must mean that the guest has it")
		}
		if p.Phase == "" && (f.Wanted || f.Holder.alive() || f.Consumer.alive()) {
			fail("something is left that nobody speaks of")
		}
	})
}

func TestEveryRuleIsAlive(t *testing.T) {
	used := map[string]bool{}
	enumerate.Every(instanceAxes, func(f Facts) { used[Instance(f).Rule] = true })
	enumerate.Every(machineAxes, func(f RunFacts) { used[Run(f).Rule] = true })
	for _, r := range instanceRules {
		if !used[r.name] {
			t.Errorf("no situation leads to rule %q", r.name)
		}
	}
	enumerate.Every(hotAxes, func(f HotFacts) { used[Hotplug(f).Rule] = true })
	for _, r := range hotRules {
		if !used[r.name] {
			t.Errorf("no situation leads to rule %q", r.name)
		}
	}
	for _, r := range machineRules {
		if !used[r.name] {
			t.Errorf("no situation leads to rule %q", r.name)
		}
	}
	if used[""] {
		t.Error("some situation has no rule")
	}
}

func TestInstanceInvariants(t *testing.T) {
	enumerate.Every(instanceAxes, func(f Facts) {
		p := Instance(f)
		does := func(a Action) bool { return slices.Contains(p.Do, a) }
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		if state.OfMachine(p.State).Message == "" && p.State != state.AsInstance {
			fail("no row for the state")
		}
		if does(StartConsumer) && (f.Disks != Held || f.Consumer != NoPod || f.Launcher != NoPod || f.Leaving) {
			fail("a consumer nobody needs")
		}
		if does(StopConsumer) && !f.Leaving && !f.Unsupported && f.Disks != Failed && f.Disks != Held && f.Launcher == NoPod && !f.Consumer.queued() {
			fail("the room is given up before the launcher is there to take it")
		}
		if does(StopConsumer) && !f.Leaving && !f.Unsupported && (f.Disks == Filling || f.Disks == Failing) && f.Launcher == NoPod {
			fail("the room is given up while a worker fills the disks")
		}
		if does(StopConsumer) && f.Launcher.queued() && !f.Consumer.queued() && !f.Nominated && !f.Leaving && f.Disks != Failed {
			fail("the room is given up before it is promised")
		}
		if (does(StartLauncher) || does(StartConsumer)) && f.Past != NoPast {
			fail("a guest would start twice in one instance")
		}
		if (does(Release) || does(StartLauncher) || does(StartConsumer)) && f.Unsupported {
			fail("a guest would start without what it asks for")
		}
		if does(Release) && f.Disks != Ready {
			fail("a guest would start without its data")
		}
		if does(Release) && (len(p.Do) < 2 || p.Do[0] != TakeDisks || f.Access.denied()) {
			fail("a guest would start on disks that are not its own")
		}
		if does(GiveDisks) && (f.Released || f.Launcher == Up) {
			fail("disks are given to others under a guest")
		}
		if does(StartLauncher) && (f.Launcher != NoPod || f.Disks == Held || f.Disks == Missing || f.Disks == Failed) {
			fail("a launcher too early")
		}
		if state.OfMachine(p.State).Ready && f.Launcher != Up {
			fail("ready without a running guest")
		}
	})
}

func TestMachineInvariants(t *testing.T) {
	enumerate.Every(machineAxes, func(f RunFacts) {
		p := Run(f)
		does := func(a Action) bool { return slices.Contains(p.Do, a) }
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		if does(CreateInstance) && (f.Instance != NoInstance || f.Leaving) {
			fail("two instances of one machine")
		}
		if does(CreateInstance) && f.Strategy == kubevirt.RunHalted {
			fail("a halted machine is started")
		}
		if does(CreateInstance) && f.Served && f.Strategy != kubevirt.RunAlways && !f.starts() {
			fail("a machine that was stopped starts again by itself")
		}
		if does(DeleteInstance) && f.Instance == Living && f.Strategy != kubevirt.RunHalted && f.Request != StopAsked && f.Request != RestartAsked {
			fail("a running machine is stopped by nobody")
		}
		if does(TakeRequest) && !does(CreateInstance) && f.Instance != Living && f.Strategy != kubevirt.RunHalted {
			fail("a start is forgotten")
		}
		if f.Means != Provided && f.Instance == NoInstance && (does(CreateInstance) || does(CreateDisks) && f.Strategy != kubevirt.RunHalted) {
			fail("a machine is started without what it takes")
		}
		if f.Instance == Stranger && (does(DeleteInstance) || does(CreateInstance)) {
			fail("somebody else's instance is touched")
		}
	})
}
