package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// watchedKind serves lists and watches, and keeps what it was asked.
type watchedKind struct {
	dynamic.ResourceInterface
	lock    sync.Mutex
	asked   []string
	watches []*watch.FakeWatcher
	refuse  error // of the next watch
	hang    bool  // the next watch is never opened
}

func (k *watchedKind) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	k.lock.Lock()
	defer k.lock.Unlock()
	k.asked = append(k.asked, "list")
	list := &unstructured.UnstructuredList{}
	list.SetResourceVersion("10")
	return list, nil
}

func (k *watchedKind) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	k.lock.Lock()
	defer k.lock.Unlock()
	k.asked = append(k.asked, fmt.Sprintf("watch after %s", options.ResourceVersion))
	if !options.AllowWatchBookmarks || options.TimeoutSeconds == nil ||
		*options.TimeoutSeconds > int64(watchTimeout/time.Second) {
		k.asked = append(k.asked, fmt.Sprintf("%+v", options))
	}
	if k.hang {
		k.hang = false
		k.lock.Unlock()
		<-ctx.Done()
		k.lock.Lock()
		return nil, ctx.Err()
	}
	if err := k.refuse; err != nil {
		k.refuse = nil
		return nil, err
	}
	w := watch.NewFake()
	k.watches = append(k.watches, w)
	return w, nil
}

func (k *watchedKind) last() *watch.FakeWatcher {
	synctest.Wait()
	k.lock.Lock()
	defer k.lock.Unlock()
	return k.watches[len(k.watches)-1]
}

// TestFollow: an agent lists once. A watch that has ended goes on after its last event or bookmark; one that cannot, or
// that brings nothing for too long, is followed by a list.
func TestFollow(t *testing.T) {
	object := func(name, version string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetName(name)
		o.SetResourceVersion(version)
		return o
	}
	synctest.Test(t, func(t *testing.T) {
		kind := &watchedKind{}
		agent := &Agent{Log: slog.New(slog.DiscardHandler)}
		var names []string
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			agent.follow(ctx, "a kind", kind, metav1.ListOptions{}, func(all map[string]*unstructured.Unstructured) {
				names = nil
				for name := range all {
					names = append(names, name)
				}
			})
		})
		kind.last().Add(object("a", "11"))
		kind.last().Stop()
		time.Sleep(2 * retryInterval)
		for range 3 {
			time.Sleep(watchSilence - 3*time.Second)
			kind.last().Action(watch.Bookmark, object("", "15"))
		}
		kind.last().Stop()
		time.Sleep(retryInterval)
		kind.last().Add(object("b", "16"))
		synctest.Wait()
		if len(names) != 2 {
			t.Errorf("%v are followed, want a and b", names)
		}
		time.Sleep(watchSilence + time.Second) // the watch is dead
		kind.last().Error(&metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired})
		time.Sleep(2 * retryInterval)
		kind.lock.Lock()
		kind.refuse = errors.New("away")
		kind.lock.Unlock()
		kind.last().Stop()
		time.Sleep(3 * retryInterval)
		kind.lock.Lock()
		kind.hang = true
		kind.lock.Unlock()
		kind.last().Stop()
		time.Sleep(retryInterval + watchSilence + 2*retryInterval) // opening it takes too long
		kind.last()
		cancel()
		running.Wait()
		want := "list, watch after 10, watch after 11, watch after 15, list, watch after 10, list, watch after 10, " +
			"watch after 10, list, watch after 10, watch after 10, list, watch after 10"
		if got := strings.Join(kind.asked, ", "); got != want {
			t.Errorf("asked\n%s, want\n%s", got, want)
		}
		if len(names) != 0 {
			t.Errorf("%v are kept after a list without them", names)
		}
	})
}
