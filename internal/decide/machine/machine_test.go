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
	enumerate.Flag("stays", "leaves", func(f *Facts) *bool { return &f.Leaving }),
	enumerate.Enum(Going, func(f *Facts) *Pod { return &f.Launcher }),
	{Count: 3, Set: func(f *Facts, i int) string { f.Others = []Pod{NoPod, Placed, Going}[i]; return f.Others.String() }},
	enumerate.Enum(PastBadly, func(f *Facts) *Past { return &f.Past }),
	enumerate.Enum(Failed, func(f *Facts) *Disks { return &f.Disks }),
	enumerate.Enum(LoggedIn, func(f *Facts) *Access { return &f.Access }),
	enumerate.Enum(Going, func(f *Facts) *Pod { return &f.Consumer }),
	enumerate.Flag("plain", "unsupported", func(f *Facts) *bool { return &f.Unsupported }),
	enumerate.Flag("unpromised", "promised", func(f *Facts) *bool { return &f.Nominated }),
	enumerate.Flag("told-to-wait", "told-to-go", func(f *Facts) *bool { return &f.Released }),
}

var strategies = []kubevirt.RunStrategy{
	kubevirt.RunAlways, kubevirt.RunHalted, kubevirt.RunManual, kubevirt.RunRerunOnFailure, kubevirt.RunOnce}

var machineAxes = []enumerate.Axis[RunFacts]{
	enumerate.Flag("stays", "leaves", func(f *RunFacts) *bool { return &f.Leaving }),
	enumerate.Named(func(f *RunFacts) *Instances { return &f.Instance }, "NoInstance", "Living", "EndedWell", "EndedBadly", "Departing", "Stranger"),
	enumerate.Named(func(f *RunFacts) *Request { return &f.Request }, "NoRequest", "StartAsked", "StopAsked", "RestartAsked", "StartPausedAsked"),
	{Count: len(strategies), Set: func(f *RunFacts, i int) string { f.Strategy = strategies[i]; return string(f.Strategy) }},
	enumerate.Flag("pausing", "due", func(f *RunFacts) *bool { return &f.RetryDue }),
	enumerate.Flag("new", "served", func(f *RunFacts) *bool { return &f.Served }),
	enumerate.Enum(VolumeAwaited, func(f *RunFacts) *Means { return &f.Means }),
	{Count: 3, Set: func(f *RunFacts, i int) string { f.Disks = []Disks{Ready, Failing, Failed}[i]; return f.Disks.String() }},
}

var hotAxes = []enumerate.Axis[HotFacts]{
	enumerate.Flag("removed", "wanted", func(f *HotFacts) *bool { return &f.Wanted }),
	enumerate.Enum(Failed, func(f *HotFacts) *Disks { return &f.Disk }),
	enumerate.Enum(Partly, func(f *HotFacts) *Access { return &f.Access }),
	enumerate.Enum(Going, func(f *HotFacts) *Pod { return &f.Consumer }),
	enumerate.Enum(Going, func(f *HotFacts) *Pod { return &f.Holder }),
	enumerate.Flag("yields", "keeps", func(f *HotFacts) *bool { return &f.Kept }),
	enumerate.Flag("free", "backed-up", func(f *HotFacts) *bool { return &f.BackedUp }),
}

func TestInstanceTable(t *testing.T) {
	golden.Equal(t, "testdata/instance.txt", "# life launcher others past disks access consumer fields promise order -> state [actions]\n"+
		enumerate.Table(instanceAxes, func(f Facts) string { return enumerate.Line(Instance(f)) }))
}

func TestMachineTable(t *testing.T) {
	golden.Equal(t, "testdata/machine.txt", "# life instance request strategy pause served means disks -> state [actions]\n"+
		enumerate.Table(machineAxes, func(f RunFacts) string { return enumerate.Line(Run(f)) }))
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
	enumerate.Rules(t, instanceAxes, instanceRules)
	enumerate.Rules(t, hotAxes, hotRules)
	enumerate.Rules(t, machineAxes, machineRules)
}

func TestInstanceInvariants(t *testing.T) {
	enumerate.Every(instanceAxes, func(f Facts) {
		p := Instance(f)
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		if state.OfMachine(p.State).Message == "" && p.State != state.AsInstance {
			fail("no row for the state")
		}
		if p.Does(StartConsumer) && (f.Disks != Held || f.Consumer != NoPod || f.Launcher != NoPod || f.Leaving) {
			fail("a consumer nobody needs")
		}
		if p.Does(StopConsumer) && !f.Leaving && !f.Unsupported && f.Disks != Failed && f.Disks != Held && f.Launcher == NoPod && !f.Consumer.queued() {
			fail("the room is given up before the launcher is there to take it")
		}
		if p.Does(StopConsumer) && !f.Leaving && !f.Unsupported && (f.Disks == Filling || f.Disks == Failing) && f.Launcher == NoPod {
			fail("the room is given up while a worker fills the disks")
		}
		if p.Does(StopConsumer) && f.Launcher.queued() && !f.Consumer.queued() && !f.Nominated && !f.Leaving && f.Disks != Failed {
			fail("the room is given up before it is promised")
		}
		if (p.Does(StartLauncher) || p.Does(StartConsumer)) && f.Past != NoPast {
			fail("a guest would start twice in one instance")
		}
		if (p.Does(Release) || p.Does(StartLauncher) || p.Does(StartConsumer)) && f.Unsupported {
			fail("a guest would start without what it asks for")
		}
		if p.Does(Release) && f.Disks != Ready {
			fail("a guest would start without its data")
		}
		if p.Does(Release) && (len(p.Do) < 2 || p.Do[0] != TakeDisks || f.Access.denied()) {
			fail("a guest would start on disks that are not its own")
		}
		if p.Does(GiveDisks) && (f.Released || f.Launcher == Up) {
			fail("disks are given to others under a guest")
		}
		if p.Does(StartLauncher) && (f.Launcher != NoPod || f.Disks == Held || f.Disks == Missing || f.Disks == Failed) {
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
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		if p.Does(CreateInstance) && (f.Instance != NoInstance || f.Leaving) {
			fail("two instances of one machine")
		}
		if p.Does(CreateInstance) && f.Strategy == kubevirt.RunHalted {
			fail("a halted machine is started")
		}
		if p.Does(CreateInstance) && f.Served && f.Strategy != kubevirt.RunAlways && !f.starts() {
			fail("a machine that was stopped starts again by itself")
		}
		if p.Does(DeleteInstance) && f.Instance == Living && f.Strategy != kubevirt.RunHalted && f.Request != StopAsked && f.Request != RestartAsked {
			fail("a running machine is stopped by nobody")
		}
		if p.Does(TakeRequest) && !p.Does(CreateInstance) && f.Instance != Living && f.Strategy != kubevirt.RunHalted {
			fail("a start is forgotten")
		}
		if f.Means != Provided && f.Instance == NoInstance && (p.Does(CreateInstance) || p.Does(CreateDisks) && f.Strategy != kubevirt.RunHalted) {
			fail("a machine is started without what it takes")
		}
		if f.Instance == Stranger && (p.Does(DeleteInstance) || p.Does(CreateInstance)) {
			fail("somebody else's instance is touched")
		}
	})
}
