package aggregated

import apierrors "k8s.io/apimachinery/pkg/api/errors"

// memoryDump refuses a memory dump, which is out of scope, and says why.
func memoryDump(asked) (int, any, error) {
	return 0, nil, apierrors.NewBadRequest("memory dumps are not supported: Berth moves and keeps disks, and writes no guest's memory to a claim")
}
