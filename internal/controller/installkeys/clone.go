package installkeys

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/rights"
	"github.com/berth-vm/berth/internal/token"
)

// CloneSecret holds the key of the clone tokens. Deleting it makes a new key, and every cross-namespace clone that has
// not been made by then has to be asked for again.
const CloneSecret = "berth-clone-key" //nolint:gosec // G101: the name of a Secret, not a secret

const cloneKey = "key"

// Clone signs and verifies clone tokens with the installation's key.
type Clone struct {
	reader    client.Reader // not a cached one: the key is read seldom and must be the present one
	writer    *cluster.Writer
	namespace string
	reviews   rights.Reviews

	mu     sync.Mutex
	key    token.Key
	lately map[string]time.Time // what was allowed, until when that need not be asked again
}

// askAgain is how long an answer about a user's rights is used: a volume is reconciled every few seconds while it is filled.
const askAgain = 30 * time.Second

// NewClone reads the key through reader, which should be a manager's API reader, and makes it if there is none. What users may
// do it asks reviews.
func NewClone(reader client.Reader, w *cluster.Writer, namespace string, reviews rights.Reviews) *Clone {
	return &Clone{reader: reader, writer: w, namespace: namespace, reviews: reviews, lately: map[string]time.Time{}}
}

// Sign makes the proof of a grant with the key of this moment.
func (c *Clone) Sign(ctx context.Context, g token.Grant) (string, error) {
	key, err := c.load(ctx)
	if err != nil {
		return "", err
	}
	return key.Sign(g)
}

// Verify returns whether the proof covers what is wanted, and whether the user it was made for may still clone that. An error of
// the token package means that it does not; any other that it could not be found out.
func (c *Clone) Verify(ctx context.Context, proof string, wanted token.Grant) error {
	user, err := c.user(ctx, proof, wanted)
	if err != nil {
		return err
	}
	about := fmt.Sprintf("%s %v", proof, wanted.Source)
	if c.fresh(about) {
		return nil
	}
	may, err := rights.MayClone(ctx, c.reviews, user, wanted.Source)
	if err != nil {
		return err
	}
	if !may {
		return fmt.Errorf("%w: user %s", token.ErrRevoked, user.Name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lately[about] = time.Now().Add(askAgain)
	return nil
}

// fresh reports whether the same was allowed a moment ago.
func (c *Clone) fresh(about string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(c.lately, func(_ string, until time.Time) bool { return now.After(until) })
	_, known := c.lately[about]
	return known
}

// user returns the user that the proof was made for.
func (c *Clone) user(ctx context.Context, proof string, wanted token.Grant) (token.User, error) {
	c.mu.Lock()
	key := c.key
	c.mu.Unlock()
	if key != nil {
		if user, err := key.Verify(proof, wanted); err == nil {
			return user, nil
		}
	}
	key, err := c.load(ctx) // it may have been replaced since
	if err != nil {
		return token.User{}, err
	}
	return key.Verify(proof, wanted)
}

func (c *Clone) load(ctx context.Context) (token.Key, error) {
	key, err := c.read(ctx)
	if apierrors.IsNotFound(err) {
		if err := c.make(ctx); err != nil {
			return nil, err
		}
		key, err = c.read(ctx) // another replica may have been faster
	}
	if err != nil {
		return nil, fmt.Errorf("read the key of clone tokens: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.key = key
	return key, nil
}

func (c *Clone) read(ctx context.Context) (token.Key, error) {
	var s corev1.Secret
	if err := c.reader.Get(ctx, types.NamespacedName{Namespace: c.namespace, Name: CloneSecret}, &s); err != nil {
		return nil, err
	}
	if len(s.Data[cloneKey]) != token.KeySize {
		return nil, errors.New("secret " + c.namespace + "/" + CloneSecret + " holds no key; delete it to have a new one made")
	}
	return s.Data[cloneKey], nil
}

func (c *Clone) make(ctx context.Context) error {
	key, err := token.NewKey()
	if err != nil {
		return err
	}
	immutable := true
	return c.writer.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: CloneSecret},
		Immutable:  &immutable,
		Data:       map[string][]byte{cloneKey: key},
	})
}
