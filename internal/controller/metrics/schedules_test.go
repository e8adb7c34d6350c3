package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
)

func TestSchedules(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := accessv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	at := func(seconds int64) *metav1.Time {
		when := metav1.NewTime(time.Unix(seconds, 0))
		return &when
	}
	good := &accessv1.MachineSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "nightly"}}
	good.Status.Machines = []accessv1.ScheduledMachine{{Name: "db", Overdue: at(900)}, {Name: "web", LastSuccess: at(800)}}
	bad := &accessv1.MachineSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "wrong"}}
	bad.Status.Conditions = []metav1.Condition{{Type: accessv1.ScheduleReady, Status: metav1.ConditionFalse}}
	c := shares{fake.NewClientBuilder().WithScheme(scheme).WithObjects(good, bad).Build(), t}
	want := `
# HELP berth_machine_schedule_last_success_timestamp_seconds The time that the last good backup or snapshot of the machine was scheduled for; a machine without one is left out
# TYPE berth_machine_schedule_last_success_timestamp_seconds gauge
berth_machine_schedule_last_success_timestamp_seconds{machine="web",namespace="ns",schedule="nightly"} 800
# HELP berth_machine_schedule_overdue_seconds For how long there should have been another good backup or snapshot of the machine; 0: the last one is not too old
# TYPE berth_machine_schedule_overdue_seconds gauge
berth_machine_schedule_overdue_seconds{machine="db",namespace="ns",schedule="nightly"} 100
berth_machine_schedule_overdue_seconds{machine="web",namespace="ns",schedule="nightly"} 0
# HELP berth_machine_schedule_ready 1 if the MachineSchedule can be carried out, 0 if it cannot be read
# TYPE berth_machine_schedule_ready gauge
berth_machine_schedule_ready{namespace="ns",schedule="nightly"} 1
berth_machine_schedule_ready{namespace="ns",schedule="wrong"} 0
`
	err := testutil.CollectAndCompare(Schedules{Reader: c, Now: func() time.Time { return time.Unix(1000, 0) }}, strings.NewReader(want))
	if err != nil {
		t.Error(err)
	}
}
