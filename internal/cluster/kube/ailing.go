package kube

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

const (
	// crashes is the number of restarts of a crashing container that a wait tolerates: the kubelet backs off 10, 20 and
	// 40 s in between, so a container that only started too early has had time to recover.
	crashes = 3
	// lastLines is the number of lines of a container's last output that are reported, lineLength the characters of
	// each.
	lastLines, lineLength = 3, 300
	// lastBytes is how much of the log is read, for at most lastWithin.
	lastBytes, lastWithin = 16 << 10, 5 * time.Second
)

// seenContainer is the state of a container at the beginning of a wait.
type seenContainer struct {
	restarts int32
	ailing   bool
}

// ailing reports a pod that cannot start because it is unschedulable, its image cannot be pulled, or a container is
// crash-looping; of several, the one that is tolerated for the shortest time.
func (a *Actor) ailing(ctx context.Context, p *patience, pods []corev1.Pod) trouble {
	first := p.seen == nil
	if first {
		p.seen = map[string]seenContainer{}
	}
	var worst trouble
	for i := range pods {
		pod := &pods[i]
		if why := unscheduled(pod); why != "" && worst.why == "" {
			worst = trouble{why: why, bears: forever} // adding nodes may take minutes
		}
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			key := string(pod.UID) + "/" + status.Name
			if first {
				p.seen[key] = seenContainer{status.RestartCount, unmade(&status) != nil ||
					looping(&status, status.RestartCount)}
			}
			seen := p.seen[key]
			if cluster.PodReady(pod) || pod.DeletionTimestamp != nil || p.others && seen.ailing {
				continue
			}
			if found := a.ailment(ctx, p.others, pod, &status, seen.restarts); found.why != "" &&
				(worst.why == "" || found.bears < worst.bears) {
				worst = found
			}
		}
	}
	return worst
}

// unscheduled returns the scheduler's message why a pod is unschedulable, without the part about preemption; empty if
// the pod is scheduled, or the scheduler has not tried yet.
func unscheduled(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse &&
			c.Reason == corev1.PodReasonUnschedulable && pod.DeletionTimestamp == nil {
			why, _, _ := strings.Cut(c.Message, ". ")
			return fmt.Sprintf("no node takes pod %s/%s: %s", pod.Namespace, pod.Name, printable(why))
		}
	}
	return ""
}

// ailment returns what keeps one container from running; zero if it runs, or may still start. restarts is its restart
// count at the beginning of the wait.
func (a *Actor) ailment(ctx context.Context, others bool, pod *corev1.Pod, status *corev1.ContainerStatus,
	restarts int32) trouble {
	name := pod.Namespace + "/" + pod.Name
	if w := unmade(status); w != nil {
		found := trouble{bears: stuckFor}
		if others {
			found.bears = stuckForOthers
		}
		found.why = fmt.Sprintf("node %s cannot make container %s of pod %s: %s",
			pod.Spec.NodeName, status.Name, name, w.Reason)
		if strings.Contains(w.Reason, "Image") {
			found.why = outage.Unpulled(pod.Spec.NodeName, printable(status.Image), name, w.Reason)
			_, found.hint = outage.Hindering(found.why)
		}
		if w.Message != "" {
			found.why += ": " + printable(w.Message)
		}
		return found
	}
	if !looping(status, restarts) {
		return trouble{}
	}
	ended, often := status.LastTerminationState.Terminated, status.RestartCount
	if status.State.Running == nil {
		often++
		ended = cmp.Or(status.State.Terminated, ended)
	}
	found := trouble{bears: forever, why: fmt.Sprintf("container %s of pod %s on node %s does not stay up: it ended",
		status.Name, name, pod.Spec.NodeName)}
	if often > 1 {
		found.why += fmt.Sprintf(" %d times, the last", often)
	}
	if ended != nil {
		found.why += fmt.Sprintf(" with code %d (%s)", ended.ExitCode, ended.Reason)
	}
	if words := a.lastWords(ctx, pod, status, ended); words != "" {
		found.why += ": " + words
	}
	if !others && status.State.Running == nil && status.RestartCount-restarts >= crashes {
		found.bears = 0
	}
	return found
}

// unmade returns why a container cannot be created, if only a person can fix that; nil otherwise.
func unmade(status *corev1.ContainerStatus) *corev1.ContainerStateWaiting {
	w := status.State.Waiting
	if w != nil && slices.Contains([]string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName",
		"ErrImageNeverPull", "ImageInspectError",
		"CreateContainerConfigError", "CreateContainerError"}, w.Reason) {
		return w
	}
	return nil
}

// looping reports whether a container that is not running has terminated by itself: just now, or since the given
// restart count.
func looping(status *corev1.ContainerStatus, restarts int32) bool {
	now := status.State
	return !status.Ready && (now.Waiting != nil && now.Waiting.Reason == "CrashLoopBackOff" ||
		now.Terminated != nil && now.Terminated.ExitCode != 0 ||
		status.RestartCount > restarts)
}

// lastWords returns the last output of a container before it terminated: its termination message, or else the end of
// its log. It is reported because it is lost when the pod is gone. It is empty if nothing can be read.
func (a *Actor) lastWords(ctx context.Context, pod *corev1.Pod, status *corev1.ContainerStatus,
	ended *corev1.ContainerStateTerminated) string {
	text := ""
	if ended != nil {
		text = ended.Message
	}
	if strings.TrimSpace(text) == "" {
		ctx, cancel := context.WithTimeout(ctx, lastWithin)
		defer cancel()
		lines := int64(5 * lastLines)
		log, err := a.Typed.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: status.Name,
			Previous: status.State.Running != nil, TailLines: &lines}).Stream(ctx)
		if err != nil {
			return "" // logs are optional: not every user may read them
		}
		defer log.Close()
		data, _ := io.ReadAll(io.LimitReader(log, lastBytes)) // a partial log is better than none
		text = string(data)
	}
	var lines []string
	for line := range strings.Lines(text) {
		if line = printable(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-lastLines):], " | ")
}

// printable makes a line from another program safe for a terminal.
func printable(line string) string {
	line = strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, line))
	if runes := []rune(line); len(runes) > lineLength { // the end of a line often has the reason
		return string(runes[:lineLength/3]) + " ... " + string(runes[len(runes)-2*lineLength/3:])
	}
	return line
}
