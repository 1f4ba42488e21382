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
)

const (
	// crashes is how often a container that ends may be seen to be started again: the kubelet waits 10, 20 and 40 s in
	// between, so that what only came too early has had its chance.
	crashes = 3
	// lastLines are told of what a container said last, and lineLength characters of each.
	lastLines, lineLength = 3, 300
	// lastBytes of a log are looked at, and that for no longer than lastWithin.
	lastBytes, lastWithin = 16 << 10, 5 * time.Second
)

// seenContainer is a container as the first look of a wait found it.
type seenContainer struct {
	restarts int32
	ailing   bool
}

// ailing says which of some pods cannot start, as no node takes it, its image does not come, or a container of it ends again
// and again; of several, the one that is borne the shortest.
func (a *Actor) ailing(ctx context.Context, p *patience, pods []corev1.Pod) trouble {
	first := p.seen == nil
	if first {
		p.seen = map[string]seenContainer{}
	}
	var worst trouble
	for i := range pods {
		pod := &pods[i]
		if why := unscheduled(pod); why != "" && worst.why == "" {
			worst = trouble{why, forever} // whoever adds nodes may need minutes
		}
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			key := string(pod.UID) + "/" + status.Name
			if first {
				p.seen[key] = seenContainer{status.RestartCount, unmade(&status) != nil || looping(&status, status.RestartCount)}
			}
			seen := p.seen[key]
			if podReady(pod) || pod.DeletionTimestamp != nil || p.others && seen.ailing {
				continue
			}
			if found := a.ailment(ctx, p.others, pod, &status, seen.restarts); found.why != "" && (worst.why == "" || found.bears < worst.bears) {
				worst = found
			}
		}
	}
	return worst
}

// unscheduled says why no node takes a pod, in the scheduler's words but for what it says of preemption; empty where one does, or
// the scheduler has not tried yet.
func unscheduled(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable && pod.DeletionTimestamp == nil {
			why, _, _ := strings.Cut(c.Message, ". ")
			return fmt.Sprintf("no node takes pod %s/%s: %s", pod.Namespace, pod.Name, printable(why))
		}
	}
	return ""
}

// ailment is what keeps one container from running; nothing where it runs, or may come to. restarts is how often it had been
// started again when the wait began.
func (a *Actor) ailment(ctx context.Context, others bool, pod *corev1.Pod, status *corev1.ContainerStatus, restarts int32) trouble {
	name := pod.Namespace + "/" + pod.Name
	if w := unmade(status); w != nil {
		found := trouble{bears: stuckFor}
		if others {
			found.bears = stuckForOthers
		}
		found.why = fmt.Sprintf("node %s cannot make container %s of pod %s: %s", pod.Spec.NodeName, status.Name, name, w.Reason)
		if strings.Contains(w.Reason, "Image") {
			found.why = fmt.Sprintf("node %s cannot get the image %s of pod %s: %s", pod.Spec.NodeName, status.Image, name, w.Reason)
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
	found := trouble{bears: forever, why: fmt.Sprintf("container %s of pod %s on node %s does not stay up: it ended", status.Name, name, pod.Spec.NodeName)}
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

// unmade is why a container does not come to be, where only a person can mend that; nil otherwise.
func unmade(status *corev1.ContainerStatus) *corev1.ContainerStateWaiting {
	w := status.State.Waiting
	if w != nil && slices.Contains([]string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
		"CreateContainerConfigError", "CreateContainerError"}, w.Reason) {
		return w
	}
	return nil
}

// looping says that a container that is not up has ended by itself: just now, or since it had been started again so often.
func looping(status *corev1.ContainerStatus, restarts int32) bool {
	now := status.State
	return !status.Ready && (now.Waiting != nil && now.Waiting.Reason == "CrashLoopBackOff" || now.Terminated != nil && now.Terminated.ExitCode != 0 ||
		status.RestartCount > restarts)
}

// lastWords is what a container said before it ended: its own message for that, or else the end of its log. When its pod
// has gone nobody can read that any more. It is empty when nothing can be read.
func (a *Actor) lastWords(ctx context.Context, pod *corev1.Pod, status *corev1.ContainerStatus, ended *corev1.ContainerStateTerminated) string {
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
			return "" // a courtesy, for which not everybody has the right
		}
		defer log.Close()
		data, _ := io.ReadAll(io.LimitReader(log, lastBytes)) // what came is better than nothing
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

// printable is a line of somebody else's, fit for a terminal.
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
	if runes := []rune(line); len(runes) > lineLength { // what is said last is often the reason
		return string(runes[:lineLength/3]) + " ... " + string(runes[len(runes)-2*lineLength/3:])
	}
	return line
}
