package handlers

import (
	"fmt"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/notify/alertmanager"
	"github.com/sonde-probe/sonde/notify/run"
	"github.com/sonde-probe/sonde/notify/webhook"
)

// notifyOutput is a block of a notify block that says by what it tells.
type notifyOutput struct {
	settings config.Settings
	fill     func(settings any, spec *notify.Spec)
}

// notifyOutputs are the blocks, by name.
var notifyOutputs = map[string]notifyOutput{
	"alertmanager": notifyOutputOf(alertmanager.Config.Check),
	"run":          notifyOutputOf(run.Config.Check),
	"webhook":      notifyOutputOf(webhook.Config.Check),
}

func notifyOutputOf[C interface{ Fill(*notify.Spec) }](check func(C) error) notifyOutput {
	return notifyOutput{config.SettingsOf(check), func(settings any, spec *notify.Spec) { settings.(C).Fill(spec) }}
}

// notifySettings returns what the blocks can contain.
func notifySettings() map[string]config.Settings {
	all := make(map[string]config.Settings, len(notifyOutputs))
	for name, o := range notifyOutputs {
		all[name] = o.settings
	}
	return all
}

// NotifySpecs returns whom the notifiers of a configuration tell, and about whom.
func NotifySpecs(notifiers map[string]config.Notifier) map[string]notify.Spec {
	specs := make(map[string]notify.Spec, len(notifiers))
	for name, n := range notifiers {
		o, ok := notifyOutputs[n.Output]
		if !ok {
			panic(fmt.Sprintf("handlers: notify %q has the output %q, which Options does not have", name, n.Output))
		}
		spec := notify.Spec{
			Output: n.Output, Labels: n.Labels, ExternalURL: n.ExternalURL, Settings: n.Settings,
			Selection: notify.Selection{Targets: n.Targets, Groups: n.Groups, Severity: n.Severity},
		}
		o.fill(n.Settings, &spec)
		specs[name] = spec
	}
	return specs
}
