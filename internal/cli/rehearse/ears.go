package rehearse

import (
	"bufio"
	"context"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/observe"
	"github.com/theseus-cni/theseus/internal/mirror/rehearsal"
	"github.com/theseus-cni/theseus/internal/mirror/standin"
)

// mostFollowed bounds the pods whose logs are read at once.
const mostFollowed = 60

// ears read what stand-ins say of their connections: in their logs, which come by the kubelets and do not need the
// network of pods. What stand-ins say while the API server is away is not read.
type ears struct {
	client *kube.Client
	asking map[string]bool
	heard  func(at time.Time, pod types.UID, number int, through bool)
	done   sync.WaitGroup

	lock      sync.Mutex
	following map[types.UID]string // the workload of each pod
}

func newEars(client *kube.Client, made *rehearsal.Copy, heard func(time.Time, types.UID, int, bool)) *ears {
	return &ears{client: client, asking: made.Asking(), heard: heard, following: map[types.UID]string{}}
}

// follow begins to read the logs of pods that ask, until they end or ctx does: of each workload as many as its share.
func (e *ears) follow(ctx context.Context, pods []corev1.Pod) {
	if len(e.asking) == 0 {
		return
	}
	e.lock.Lock()
	defer e.lock.Unlock()
	n := map[string]int{}
	for _, workload := range e.following {
		n[workload]++
	}
	most := max(1, mostFollowed/len(e.asking))
	for i := range pods {
		pod, workload := &pods[i], observe.Workload(&pods[i])
		if e.following[pod.UID] != "" || !e.asking[workload] || n[workload] >= most || pod.DeletionTimestamp != nil ||
			!cluster.PodReady(pod) {
			continue
		}
		n[workload]++
		e.following[pod.UID] = workload
		namespace, name, container, uid := pod.Namespace, pod.Name, pod.Spec.Containers[0].Name, pod.UID
		e.done.Go(func() {
			e.read(ctx, namespace, name, container, uid)
			e.lock.Lock()
			defer e.lock.Unlock()
			delete(e.following, uid)
		})
	}
}

// read reads the log of one pod, from now on.
func (e *ears) read(ctx context.Context, namespace, name, container string, uid types.UID) {
	stream, err := e.client.Typed.CoreV1().Pods(namespace).GetLogs(name, &corev1.PodLogOptions{Container: container,
		Follow: true, Timestamps: true, TailLines: new(int64(0))}).Stream(ctx)
	if err != nil {
		return // follow tries again
	}
	defer stream.Close() //nolint:errcheck // it was only read
	lines := bufio.NewScanner(stream)
	var node clock
	for lines.Scan() {
		stamp, said, _ := strings.Cut(lines.Text(), " ")
		number, through, ok := standin.Answer(said)
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if ok && err == nil {
			e.heard(node.date(at, time.Now()), uid, number, through)
		}
	}
}

// clock tells the times of a node on this machine's clock.
type clock struct {
	known bool
	ahead time.Duration // this machine's clock before the node's, with the delay of the fastest line
}

// date is when a line was written that a node has stamped and that is read now. Lines come late, for example after a
// pause of the connection, and the clocks differ: the fastest line says by how much.
func (c *clock) date(stamp, now time.Time) time.Time {
	if ahead := now.Sub(stamp); !c.known || ahead < c.ahead {
		c.known, c.ahead = true, ahead
	}
	return stamp.Add(c.ahead)
}
