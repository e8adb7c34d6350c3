package transfer

import (
	"context"
	"errors"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/http"
)

// open opens the one source that s names.
func open(ctx context.Context, s task.Source) (source.Blob, error) {
	switch {
	case s.HTTP != nil:
		return http.Open(ctx, *s.HTTP)
	}
	return nil, &task.Error{Reason: task.BadTask, Err: errors.New("the task names no source")}
}
