// Package notify sends what happens in a run to an HTTP endpoint: CloudEvents 1.0 in structured mode
// (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md), signed as Standard
// Webhooks (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md). Nothing here
// stops or delays a run.
//
// Belongs here: the endpoint, and the queue in front of it. Does not belong here: which events there are (run).
package notify
