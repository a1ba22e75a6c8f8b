package browser

import "flag"

var screenshots = flag.String("screenshots", "", "take screenshots into this `directory`")
