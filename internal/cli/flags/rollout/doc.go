// Package rollout is the command `theseus flags rollout`.
package rollout
