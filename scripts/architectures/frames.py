"""The memory of a forward pass, place by place, as expressions of a model's configuration.

Builds a type of transformers on the meta device, where tensors have shapes but no bytes, with configurations changed in one
value at a time and in many. Each run records what is allocated and freed, and where: the module and the how many-th operation
in it. For each place that is the peak of some run, the sizes of what lives there, beside parameters, buffers and the cache of
keys and values, are written as products of configuration values, B (sequences) and S (tokens of each) that hold in all runs.

    frames.py OUT KIND[.TYPE]...      KIND: a key of MAPS; writes OUT/KIND.TYPE.json, skips those that exist
    frames.py -v OUT KIND.TYPE        shows the rows
    frames.py --record FILE KIND.TYPE...   measures configurations of other values, for tests: tests/model/activations.jsonl.xz

Attention is a function that allocates its result alone, as FlashAttention does. D is the size of the type of activations."""
import collections, functools, gc, itertools, json, lzma, math, os, random, re, signal, sys, time, warnings, weakref
import numpy as np
import torch, transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers.models.auto import modeling_auto as auto

from expressions import compiled, evaluate

warnings.filterwarnings('ignore')
transformers.logging.set_verbosity_error()
MAPS = dict(causal='MODEL_FOR_CAUSAL_LM_MAPPING_NAMES', vlm='MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES',
            s2s='MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES', speech='MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES',
            base='MODEL_MAPPING_NAMES', masked='MODEL_FOR_MASKED_LM_MAPPING_NAMES', ctc='MODEL_FOR_CTC_MAPPING_NAMES',
            detection='MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES', image='MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES',
            segmentation='MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES',
            sequence='MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES')
# Values that change no shape.
IGNORE = re.compile(r'(token_id|_token_index|initializer|transformers_version|max_length|num_beams|chunk_size_feed|return_|'
                    r'output_(att|hid|past)|use_cache|torchscript|is_encoder_decoder|problem_type|drop|eps$|epsilon|temperature|'
                    r'min_length|num_return|diversity|bos|eos|pad_token|id2label|label2id|pretraining_tp|router_jitter|aux_loss|'
                    r'loss_|_id$|rope_theta|_range$|_std$|softcap|scaling$|rope_parameters|dtype|_factor_min|gradient_check|'
                    r'_init|init_|mask_time|mask_feature|_coef|_cost|_threshold|ctc_|mlm_|norm_topk|'
                    r'max_position|n_positions|tie_word|architectures|model_type|scale_factor|_bias$|use_bias|_act$|_fn$|activation)')
LAYERS = re.compile(r'(^|\.)(num_hidden_layers|n_layers?|num_layers|encoder_layers|decoder_layers|num_decoder_layers|'
                    r'num_encoder_layers|num_block|num_blocks|depth)$')
POSITIONS = re.compile(r'(^|\.)(max_position_embeddings|n_positions|n_ctx|max_target_positions|max_seq_len|'
                       r'max_sequence_length|seq_length|max_seq_length)$')
OTHER_PART = re.compile(r'(^|\.)(vision\w*|audio\w*|image\w*|speech\w*|perceiver\w*|qformer\w*|vit\w*|code\w*|vq\w*|sam\w*|'
                        r'protein\w*|tower\w*|video\w*|projector\w*|talker\w*|token2wav\w*)\.')
GLM_ROPE = {'rope_type': 'default', 'rope_theta': 10000.0, 'partial_rotary_factor': 0.5, 'mrope_section': [8, 12, 12]}
# Values without which a type's own configuration cannot run.
PRESETS = {'deepseek_v2': {'num_experts_per_tok': 6, 'moe_intermediate_size': 1408}, 'hunyuan_v1_dense': {'head_dim': 128},
           'hunyuan_v1_moe': {'head_dim': 128}, 'ministral': {'head_dim': 128}, 'nemotron': {'num_key_value_heads': 8},
           'dots1': {'n_routed_experts': 128, 'n_shared_experts': 2, 'num_experts_per_tok': 6},
           'granitemoehybrid': {'num_hidden_layers': 2, 'layer_types': ['mamba', 'attention']},
           'lfm2_moe': {'num_hidden_layers': 4, 'layer_types': ['conv', 'conv', 'full_attention', 'conv']},
           'dbrx': {'attn_config.rope_theta': 500000.0},
           'hunyuan_vl': {'text_config.head_dim': 128}, 'hunyuan_vl_text': {'head_dim': 128}}
for name in ('glm4v', 'glm4v_moe', 'glm46v', 'glm_image', 'glmga'):
    PRESETS[name] = {'text_config.head_dim': 128, 'text_config.rope_parameters': GLM_ROPE}
    PRESETS[name + '_text'] = {'head_dim': 128, 'rope_parameters': GLM_ROPE}
ITEMS = 8  # most of a list whose items are values of their own: hidden_sizes[0]
SAMPLES = 320  # of sound, for a token: 20 ms at 16 kHz
BASE_S, BASE_B = 512, 3
LOADS = [(2, 512), (3, 768), (3, 6144), (1, 256), (2, 200), (1, 64), (2, 1536), (5, 512), (1, 4096), (2, 6144), (2, 1000)]
NAMES = re.compile(r'(?<=[._])(\d+)(?=[._]|$)')


def flash(module, query, key, value, attention_mask=None, scaling=None, dropout=0.0, **kw):
    return query.new_empty((query.shape[0], query.shape[2], query.shape[1], value.shape[3])), None


transformers.AttentionInterface.register('metaonly', flash)


class Slow(Exception):
    pass


def alarm(*_):
    raise Slow()


def flatten(c, prefix=''):
    out = {}
    for k, v in c.items():
        if not isinstance(k, str) or IGNORE.search(k):
            continue
        if isinstance(v, dict):
            out.update(flatten(v, prefix + k + '.'))
        elif isinstance(v, (list, tuple)) and 0 < len(v) <= ITEMS and all(type(x) is int for x in v):
            out.update({'%s%s[%d]' % (prefix, k, i): x for i, x in enumerate(v)})
        else:
            out[prefix + k] = v
    return out


def line():
    """The line of transformers that runs: (file, line)."""
    f = sys._getframe(3)
    while f is not None:
        name = f.f_code.co_filename
        if '/transformers/' in name:
            return os.path.basename(name), f.f_lineno
        f = f.f_back
    return '', 0


class Recorder(TorchDispatchMode):
    """Records each storage that is made and freed while it is entered, in order."""

    def __init__(self, known, names):
        super().__init__()
        self.known = {t.untyped_storage()._cdata for t in known}
        self.names = names
        self.modules = []
        self.events = []  # (+, number, bytes, shape, dtype, op, place) or (-, number)
        self.live = {}  # storages by their address, which others have after them: number
        self.made = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        place = self.place()
        if func is torch.ops.aten._local_scalar_dense.default:  # a mask is all ones, a length or an index is the least
            return True if args[0].dtype == torch.bool else 0
        out = func(*args, **(kwargs or {}))
        for t in tree_leaves(out):
            if not isinstance(t, torch.Tensor):
                continue
            s = t.untyped_storage()
            k = s._cdata
            if k in self.known or k in self.live:
                continue
            self.made += 1
            self.live[k] = self.made
            self.events.append((1, self.made, s.nbytes(), tuple(t.shape), str(t.dtype)[6:], func._overloadpacket.__name__) + place)
            weakref.finalize(s, self.free, k)
        return out

    def place(self):
        return ((self.modules[-1] if self.modules else '',) + line(),)

    def free(self, k):
        self.events.append((-1, self.live.pop(k, None)))

    def enter(self, module, _):
        self.modules.append(self.names.get(module, ''))

    def leave(self, module, _, __):
        if self.modules:
            self.modules.pop()


def cache_storages(out):
    found = set()

    def walk(o, depth=0):
        if isinstance(o, torch.Tensor):
            found.add(o.untyped_storage()._cdata)
        elif isinstance(o, (list, tuple)):
            for x in o:
                walk(x, depth + 1)
        elif isinstance(o, dict):
            for x in o.values():
                walk(x, depth + 1)
        elif hasattr(o, '__dict__') and depth < 9:
            walk(vars(o), depth + 1)

    for name in ('past_key_values', 'cache_params', 'state', 'mems'):
        walk(getattr(out, name, None))
    return found


def image_shape(c):
    for s in (c, getattr(c, 'vision_config', None), getattr(c, 'backbone_config', None)):
        size = getattr(s, 'image_size', None)
        if size:
            size = size if isinstance(size, (list, tuple)) else (size, size)
            return getattr(s, 'num_channels', None) or 3, size[0], size[-1]
    return 3, 224, 224


def inputs(kind, c, m, B, S, more):
    """What the model is called with, and what it may need beside it; the keywords that it does not take are left out."""
    dtype = next(m.parameters()).dtype
    given = main_inputs(kind, c, m, B, S)
    for name in more:
        if name == 'pixel_values':
            given[name] = torch.zeros((B,) + image_shape(c), dtype=dtype, device='meta')
        elif name == 'bbox':
            given[name] = torch.zeros((B, S, 4), dtype=torch.long, device='meta')
        elif name == 'decoder_input_ids':
            given[name] = torch.zeros((B, S), dtype=torch.long, device='meta')
    return given


def main_inputs(kind, c, m, B, S):
    ids = torch.zeros((B, S), dtype=torch.long, device='meta')
    dtype = next(m.parameters()).dtype
    main = getattr(m, 'main_input_name', 'input_ids')
    if kind == 'speech' and main == 'input_features':
        mel = getattr(c, 'num_mel_bins', None)
        source = getattr(c, 'max_source_positions', None)
        if type(m).__name__.startswith('Whisper'):
            x = torch.zeros((B, mel, 2 * source), dtype=dtype, device='meta')
        else:
            x = torch.zeros((B, S, getattr(c, 'input_feat_per_channel', mel or 80)), dtype=dtype, device='meta')
        return dict(input_features=x, decoder_input_ids=ids, use_cache=True)
    if kind == 'speech' and main == 'input_values':
        return dict(input_values=torch.zeros((B, SAMPLES * S), dtype=dtype, device='meta'), decoder_input_ids=ids, use_cache=True)
    if kind in ('causal', 'vlm'):
        return dict(input_ids=ids, use_cache=True, logits_to_keep=1)
    if kind in ('s2s', 'speech'):
        return dict(input_ids=ids, decoder_input_ids=ids, use_cache=True)
    if main == 'pixel_values':
        shape = image_shape(c)
        return dict(pixel_values=torch.zeros((B,) + shape, dtype=dtype, device='meta'))
    if main == 'input_values' and hasattr(c, 'frequency_stride'):  # a spectrogram of one length
        return dict(input_values=torch.zeros((B, c.max_length, c.num_mel_bins), dtype=dtype, device='meta'))
    if main == 'input_values':
        return dict(input_values=torch.zeros((B, SAMPLES * S), dtype=dtype, device='meta'))
    if main == 'input_features':
        for k in ('num_mel_bins', 'feature_size', 'feature_projection_input_dim', 'input_size', 'num_mels'):
            mel = getattr(c, k, None)
            if mel:
                break
        return dict(input_features=torch.zeros((B, S, mel or 80), dtype=dtype, device='meta'))
    if main != 'input_ids':
        raise ValueError('input ' + main)
    return dict(input_ids=ids)


class Type:
    def __init__(self, kind, t):
        names = getattr(auto, MAPS[kind])[t]
        self.arch = names if isinstance(names, str) else names[0]
        self.C, self.kind, self.t = getattr(transformers, self.arch), kind, t
        self.base = transformers.AutoConfig.for_model(t).to_dict()
        self.attentions = 'metaonly', 'eager'
        self.has_stages = any(k.endswith('[2]') for k in flatten(self.base))
        self.attention = 'metaonly'
        self.unused = set()  # keywords that the model does not take
        self.more = ()  # inputs that it needs beside the main one

    def nest(self, over):
        out = {}
        for k, v in over.items():
            d, b = out, self.base
            for p in k.split('.')[:-1]:
                b = b.get(p) or {}
                d = d.setdefault(p, {'model_type': b['model_type']} if 'model_type' in b else {})
            name, _, item = k.split('.')[-1].partition('[')
            if item:
                d[name] = list(d.get(name) or b.get(name))
                d[name][int(item[:-1])] = v
            else:
                d[name] = v
        return out

    def place(self, module):
        """A module's name without numbers; the first of several stays where stages have sizes of their own."""
        first = NAMES.search(module) if self.has_stages else None
        end = first.end() if first and NAMES.search(module, first.end()) else 0
        return module[:end] + NAMES.sub('{}', module[end:])

    def build(self, over, dtype=torch.bfloat16):
        c = transformers.AutoConfig.for_model(self.t, **self.nest(over))
        torch.set_default_dtype(dtype)
        try:
            with torch.device('meta'):
                c._attn_implementation = self.attention
                return c, self.C._from_config(c).eval()
        finally:
            torch.set_default_dtype(torch.float32)

    def run(self, over, B, S, dtype=torch.bfloat16, seconds=20):
        signal.setitimer(signal.ITIMER_PROF, seconds)  # of its own time, not of a busy machine
        try:
            c, m = self.build(over, dtype)
            names = {mod: self.place(n) for n, mod in m.named_modules()}
            while True:
                kw = {k: v for k, v in inputs(self.kind, c, m, B, S, self.more).items() if k not in self.unused}
                known = list(m.parameters()) + list(m.buffers()) + list(x for x in kw.values() if isinstance(x, torch.Tensor))
                r = Recorder(known, names)
                hooks = [torch.nn.modules.module.register_module_forward_pre_hook(r.enter),
                         torch.nn.modules.module.register_module_forward_hook(r.leave)]
                try:
                    with torch.no_grad(), r:
                        out = m(**kw)
                    cache, events = {r.live.get(k) for k in cache_storages(out)}, list(r.events)
                    del out
                    break
                except TypeError as e:
                    x = re.search(r"unexpected keyword argument '(\w+)'", str(e))
                    if not x or x.group(1) not in kw:
                        raise
                    self.unused.add(x.group(1))
                finally:
                    for h in hooks:
                        h.remove()
            return Probe(over, dict(flatten(c.to_dict()), B=B, S=S), events, cache)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def candidates(self, key, value):
        return candidates(key, value)

    def enough(self, key, _):
        return 2 if LAYERS.search(key) else 1

    def smallest(self):
        return smallest(self)

    def tensors(self, over):
        _, m = self.build(over)
        return {NAMES.sub('{}', n): tuple(p.shape) for n, p in m.named_parameters()}


class Probe:
    def __init__(self, over, flat, events, cache):
        self.over, self.flat, self.events, self.cache = over, flat, events, cache
        self.places = {}  # place: most bytes beside the cache
        self.peak = self.peak_place = None
        live, now, held, best = {}, 0, 0, 0
        for e in events:
            if e[0] > 0:
                live[e[1]] = e
                if e[1] in cache:
                    held += e[2]
                now += e[2]
                if now > best:
                    best, self.peak_place = now, e[6]
            else:
                e = live.pop(e[1], None)
                if e:
                    now -= e[2]
                    if e[1] in cache:
                        held -= e[2]
        self.cache_bytes = held
        self.peak = best - held
        self.mark = hash(tuple((e[3], e[4], e[6]) if e[0] > 0 else 0 for e in events))

    def look(self, places):
        """What lives at these places when most does: {place: (bytes, [(dtype, module, op, shape)], cache is empty)}."""
        live, now, held, best = {}, 0, 0, {}
        for e in self.events:
            if e[0] > 0:
                live[e[1]] = e
                if e[1] in self.cache:
                    held += e[2]
                else:
                    now += e[2]
                p = e[6]
                if p in places and now + held >= best.get(p, (0, 0))[1]:
                    best[p] = (now, now + held, [x for x in live.values() if x[1] not in self.cache], held)
            else:
                e = live.pop(e[1], None)
                if e:
                    if e[1] in self.cache:
                        held -= e[2]
                    else:
                        now -= e[2]
        return {p: (b[0], [(x[4], x[6], x[5], x[3], x[2]) for x in b[2]], b[3] == 0 and self.cache_bytes > 0)
                for p, b in best.items()}


WORDS = {'feed_forward_proj': ('relu', 'gated-gelu'), 'layer_type': ('basic', 'bottleneck')}  # of sizes, by keys


def candidates(k, v):
    if isinstance(v, str):
        return [w for w in WORDS.get(k, ()) if w != v]
    if isinstance(v, bool):
        return [not v]
    if isinstance(v, int):
        if LAYERS.search(k):
            return [v + 1, v + 2, v * 2, v * 3]
        return [x for x in (v * 2, v // 2, v * 3, v + 1, v * 4, v - 1, v + 7, 1, 2, 4) if x != v and x > 0]
    if isinstance(v, float):
        return [v * 2, v / 2]
    if v is None and re.search(r'(size|dim|heads|rank|inner|kernel|experts|d_ff|kv|_lora|width)', k):
        return [64, 2, 128, 8]
    return []


def every(c, prefix=''):
    for k, v in c.items():
        if isinstance(v, dict):
            yield from every(v, prefix + str(k) + '.')
        else:
            yield prefix + str(k), v


def smallest(T):
    """The base configuration: few layers, of all kinds."""
    flat = flatten(T.base)
    keys = [k for k, v in flat.items() if LAYERS.search(k) and isinstance(v, int) and not isinstance(v, bool)]
    over = dict(PRESETS.get(T.t, {}))
    for k, v in every(T.base):  # room for the tokens of all runs
        if POSITIONS.search(k) and type(v) is int and 0 < v < 8192:
            try:
                T.tensors({**over, k: 8192})
                over[k] = 8192
            except Exception:
                pass
    for k in keys:
        if flat[k] > 8:
            try:
                T.tensors({**over, k: 8})
                over[k] = 8
            except Exception:
                pass
    full = T.tensors(over)
    for n in (2, 3, 4, 6):
        o = {**over, **{k: min(n, over.get(k, flat[k])) for k in keys}}
        try:
            if T.tensors(o) == full:
                over = o
                break
        except Exception:
            pass
    for k, v in flat.items():  # groups of heads differ from heads
        if re.search(r'(key_value_heads|kv_heads|n_head_kv)$', k) and isinstance(v, int) and v % 2 == 0:
            heads = [flat[q] for q in flat if re.search(r'(attention_heads|n_heads?|num_heads)$', q) and q.rpartition('.')[0] == k.rpartition('.')[0]]
            if v in heads:
                try:
                    T.run({**over, k: v // 2}, 1, 64)
                    over[k] = v // 2
                except Exception:
                    pass
    return over


MORE = ((), ('pixel_values',), ('decoder_input_ids',), ('bbox',), ('pixel_values', 'bbox'), ('pixel_values', 'decoder_input_ids'))


def first_run(T, whole=True):
    """The base configuration and its run, with the attention and the inputs that the type needs."""
    first = None
    few = {k: min(v, 4) for k, v in flatten(T.base).items() if LAYERS.search(k) and type(v) is int}
    for T.more, T.attention in itertools.product(MORE, T.attentions):
        try:
            T.few = {**few, **PRESETS.get(T.t, {})}
            try:
                T.run(T.few, 1, 64)
            except Exception:
                T.few = PRESETS.get(T.t, {})
                T.run(T.few, 1, 64)
            if not whole:
                return None
            over = T.smallest()
            return over, T.run(over, BASE_B, BASE_S, seconds=60)
        except (KeyError, AttributeError, TypeError, ValueError, IndexError, RuntimeError) as e:
            first = first or e
    raise first


def has_groups(flat):
    """Whether heads of keys and values are no more than the heads."""
    return not any(re.search(r'num_key_value_heads$', k) and type(v) is int and
                   v > (flat.get(k.replace('num_key_value_heads', 'num_attention_heads')) or v) for k, v in flat.items())


def others(T, p0, good, rnd, count, loads):
    """Runs of configurations further from the base: values by quarters to eightfold."""
    found, over = [], p0.over
    for _ in range(3 * count):
        o, share = dict(over), rnd.choice((.15, .3, .5))
        for k, g in good.items():
            if rnd.random() > share:
                continue
            for q in (k if isinstance(k, tuple) else (k,)):
                v = p0.flat[q]
                wide = type(v) is int and v > 1 and not LAYERS.search(q)
                if wide:
                    o[q] = max(1, rnd.choice((v // 4, v // 2, v * 2, v * 3, v * 4, v * 8)))
                else:
                    o[q] = v * 2 if isinstance(k, tuple) else rnd.choice(g)
        try:
            p = T.run(o, *rnd.choice(loads), seconds=8)
        except Exception:
            continue
        if has_groups(p.flat):
            found.append(p)
        if len(found) == count:
            break
    return found


def explore(T, seconds=20, combos=10):
    kind, start = T.kind, time.process_time()
    over, p0 = first_run(T)
    took = time.process_time()
    p0 = T.run(over, BASE_B, BASE_S, seconds=60)
    took = time.process_time() - took
    loads = [x for x in LOADS if x[1] * took < 2048] or [(1, 256)]  # long ones only where time does not grow with tokens
    probes, owner, good, stuck = [p0], [None], {}, []
    for b, s in ((1, 1000), (2, 200)):  # the type's own values
        try:
            probes.append(T.run(T.few, b, s))
            owner.append(None)
        except Exception:
            pass
    for b, s in loads[:6]:
        probes.append(T.run(over, b, s))
        owner.append({'B'} if s == BASE_S else {'S'} if b == BASE_B else {'B', 'S'})
    for k, v in p0.flat.items():
        if k in 'BS' or time.process_time() - start > seconds:
            continue
        if kind in ('causal', 'vlm') and not T.more and OTHER_PART.search(k):
            continue
        found, same, failed = [], 0, 0
        for x in T.candidates(k, v):
            if len(found) >= T.enough(k, v) or same >= 1 or failed >= 4:
                break
            try:
                p = T.run({**over, k: x}, BASE_B, BASE_S)
            except Exception:
                failed += 1
                continue
            if p.mark == p0.mark:
                same += 1
                continue
            found.append(x)
            probes.append(p)
            owner.append({k})
        if found:
            good[k] = found
        elif failed and not same and isinstance(v, int) and v > 1:
            stuck.append(k)
    for a, b in itertools.combinations(stuck[:5] + [k for k in good if re.search('head|hidden|dim|size', k)][:6], 2):
        if (a not in stuck and b not in stuck) or time.process_time() - start > seconds:
            continue
        va, vb = p0.flat[a], p0.flat[b]
        if type(va) is not int or type(vb) is not int:
            continue
        try:
            p = T.run({**over, a: va * 2, b: vb * 2}, BASE_B, BASE_S)
        except Exception:
            continue
        if p.mark != p0.mark:
            probes.append(p)
            owner.append({a, b})
            good.setdefault((a, b), [2])
    rnd, done, tries = random.Random(1), 0, 0
    while done < combos and tries < 3 * combos and time.process_time() - start < seconds * 1.5:
        tries += 1
        o, share = dict(over), rnd.choice((.3, .6, 1))
        for k, g in good.items():
            if rnd.random() > share:
                continue
            if isinstance(k, tuple):
                for q in k:
                    o[q] = p0.flat[q] * 2
            else:
                o[k] = rnd.choice(g)
        try:
            p = T.run(o, *rnd.choice(loads))
        except Exception:
            continue
        probes.append(p)
        owner.append(None)
        done += 1
    info = dict(seconds=round(time.process_time() - start, 1), probes=len(probes), combos=done, stuck=stuck)
    return probes, owner, good, loads, info


class Finder:
    """Finds sums of products of configuration values that equal given numbers in a set of probes."""

    def __init__(self, probes, keys):
        self.n = len(probes)
        atoms = {}
        for k in keys:
            vs = [p.flat.get(k) for p in probes]
            if any(isinstance(v, str) for v in vs):
                for w in sorted({v for v in vs if isinstance(v, str)}):
                    atoms['%s=%s' % (k, w)] = [float(v == w) for v in vs]
                    atoms['!%s=%s' % (k, w)] = [float(v != w) for v in vs]
                continue
            if not all(v is None or isinstance(v, (int, float)) for v in vs) or all(v is None for v in vs):
                continue
            if any(v for v in vs):
                atoms[k] = [float(v or 0) for v in vs]
            if any(isinstance(v, bool) or not v for v in vs):
                atoms['!' + k] = [float(not v) for v in vs]
                if not all(isinstance(v, bool) for v in vs):
                    atoms['?' + k] = [float(bool(v)) for v in vs]
        self.atoms = {k: np.array(v) for k, v in atoms.items() if len(set(v)) > 1}
        # values that never change are numbers, which the probes cannot tell from others
        ints = [k for k in self.atoms if k[0] not in '!?' and min(self.atoms[k]) >= 1]
        quot = {}
        for a in ints:
            for b in ints:
                if a != b and a not in 'BS' and b not in 'BS':
                    q = self.atoms[a] / self.atoms[b]
                    few = len(ints) <= 8 or ('patch' in b and 'image' in a)
                    if few and (q == np.floor(q)).all() and q.max() > 1:
                        quot['(%s/%s)' % (a, b)] = q
                    elif few and q.max() > 4:
                        quot['(%s//%s)' % (a, b)] = np.floor(q)
        base = [('1', np.ones(self.n))]
        load = [x for x in ('B', 'S') if x in self.atoms]
        base += [(x, self.atoms[x]) for x in load]
        if len(load) == 2:
            base.append(('B*S', self.atoms['B'] * self.atoms['S']))
        if 'S' in self.atoms:
            base += self.padded(probes, keys)
        rest = {**{k: v for k, v in self.atoms.items() if k not in ('B', 'S')}, **quot}
        mono = [('', np.ones(self.n))] + list(rest.items())
        pairs = list(itertools.combinations_with_replacement(rest, 2)) if len(rest) <= 40 else []
        mono += [('%s*%s' % p, rest[p[0]] * rest[p[1]]) for p in pairs]
        if len(rest) <= 9:
            mono += [('*'.join(p), rest[p[0]] * rest[p[1]] * rest[p[2]]) for p in itertools.combinations(rest, 3)]
        names, rows, seen = [], [], {}
        for mn, mv in mono:
            for bn, bv in base:
                v = bv * mv
                key = v.tobytes()
                if key in seen or not v.any():
                    continue
                seen[key] = len(names)
                names.append(mn if bn == '1' and mn else bn if not mn else bn + '*' + mn)
                rows.append(v)
        self.names, self.rows, self.index = names, np.array(rows).reshape(len(rows), self.n), seen
        order = sorted(range(len(names)), key=lambda i: (names[i].count('*') + names[i].count('/'), len(names[i])))
        self.order = order
        self.cache = {}

    def padded(self, probes, keys):
        """Tokens filled up to whole chunks, and their numbers."""
        chunks = [(k, [p.flat.get(k) for p in probes]) for k in keys if re.search(r'chunk_?(size|len)', k)]
        if not chunks and any(re.search(r'(^|\.)(linear|ssm|mamba|gla|delta)_', k) for k in probes[0].flat):
            chunks = [('64', [64] * self.n)]
        found = []
        for name, sizes in chunks:
            if not all(type(x) is int and x > 1 for x in sizes):
                continue
            count = np.ceil(self.atoms['S'] / np.array(sizes, dtype=float))
            text = '((S+%s-1)//%s)' % (name, name)
            both = [(text, count), ('%s*%s' % (text, name), count * sizes)]
            found += both + [('B*' + t, self.atoms['B'] * v) for t, v in both if 'B' in self.atoms]
        return found

    def find(self, y):
        y = np.array(y, dtype=float)
        key = y.tobytes()
        if key not in self.cache:
            self.cache[key] = self._find(y)
        return self.cache[key]

    def nearest(self, y):
        """The single product that is nearest, times a number, and by how much it is off."""
        y, best = np.array(y, dtype=float), None
        for i in self.order:
            if (self.rows[i] <= 0).any():
                continue
            q = np.log(y / self.rows[i])
            off = np.abs(q - np.median(q)).max()
            if best is None or off < best[0] - 1e-9:
                best = off, float(np.exp(np.median(q))), self.names[i]
        return term(best[1], best[2]), best[0]

    def _lookup(self, y):
        return self.index.get((y + 0.0).tobytes())

    def _find(self, y):
        if (y == y[0]).all():
            return '%g' % y[0] if y[0] == int(y[0]) and abs(y[0]) < 1e6 else '%d' % y[0]
        i = self._lookup(y)
        if i is not None:
            return self.names[i]
        with np.errstate(divide='ignore', invalid='ignore'):
            q = np.where(self.rows != 0, y / self.rows, np.where(y == 0, np.nan, np.inf))
        lo, hi = np.nanmin(q, axis=1), np.nanmax(q, axis=1)
        hits = [i for i in self.order if lo[i] == hi[i] and lo[i] != 0 and np.isfinite(lo[i]) and ((lo[i] * 8) == int(lo[i] * 8) or (1 / lo[i]) == int(1 / lo[i]))]
        if hits:
            return term(lo[hits[0]], self.names[hits[0]])
        for c in (1., 2., .5, 3., 4., -1.):
            d = y - c * self.rows
            for i in self.order:
                for c2 in (1., 2., 3., 4., .5, -1., -2.):
                    j = self._lookup(d[i] / c2)
                    if j is not None:
                        return '(%s%s%s)' % (term(c, self.names[i]), '+' if c2 > 0 else '', term(c2, self.names[j]))
        small = [i for i in self.order if self.names[i].count('*') <= 1][:60]
        for (i, j), ci, cj in itertools.product(itertools.combinations(small, 2), (1., 2.), (1., 2.)):
            d = y - ci * self.rows[i] - cj * self.rows[j]
            for c in (1., 2., -1.):
                k = self._lookup(d / c)
                if k is not None:
                    return '(%s+%s%s%s)' % (term(ci, self.names[i]), term(cj, self.names[j]), '+' if c > 0 else '', term(c, self.names[k]))
        return None


def term(c, name):
    text = ('%.6f' % c).rstrip('0').rstrip('.') if abs(c) < 100 else '%.0f' % c
    if name == '1':
        return text
    return name if c == 1 else '-' + name if c == -1 else '%s*%s' % (text, name)


ELEMENT = dict(bfloat16=2, float32=4)
SIZES = dict(bfloat16='2', float16='2', float32='4', float64='8', int64='8', int32='4', int16='2', int8='1', uint8='1',
             bool='1', complex64='8')


def row_of(probes, sets, idx, owner, keys, dtype, finders=None):
    """One place's expression from the live sets of the probes idx; tensors that some lack have a number that is 0 there."""
    sub = [probes[i] for i in idx]
    slots = {}
    counts = {i: collections.Counter(x[:3] for x in sets[i]) for i in idx}
    for k in sorted(set().union(*counts.values())):
        made = {i: [x for x in sets[i] if x[:3] == k] for i in idx if k in counts[i]}
        if len(made) == len(idx) and len({len(v) for v in made.values()}) == 1:
            for n in range(len(made[idx[0]])):
                slots[k, n] = {i: v[n][3:] + (1,) for i, v in made.items()}
        elif all(len({x[3] for x in v}) == 1 for v in made.values()):  # a number of equal ones
            slots[k, 0] = {i: v[0][3:] + (len(v),) for i, v in made.items()}
        else:
            slots[k, 0] = {i: ((sum(math.prod(x[3]) for x in v),), sum(x[4] for x in v), 1) for i, v in made.items()}
    terms, unknown = {}, 0.
    finders = {} if finders is None else finders
    for (k, _), have in sorted(slots.items(), key=lambda s: s[0][1]):
        where = tuple(i for i in idx if i in have)
        sizes = np.array([have[i][1] for i in where], dtype=float)

        def expression(values, over=idx):
            if len(set(values)) == 1 and over != idx and values[0] > 16:  # few runs: rather a value of theirs than a number
                same = [k for k in keys if all(probes[i].flat.get(k) == values[0] for i in over)]
                if same:
                    return min(same, key=lambda k: (len(k), k))
            if len(set(values)) == 1:
                return Finder.find(finders.setdefault(('', over), Finder([probes[i] for i in over], ())), values)
            depends = {'B', 'S'}
            if 0 in over:
                first = values[over.index(0)]
                for n, i in enumerate(over):
                    if owner[i] and values[n] != first:
                        depends |= owner[i]
            tries = [depends, depends | {q for q in keys if q.endswith(tuple(x.rpartition('.')[2] for x in depends - {'B', 'S'}) or ('\0',))}, set(keys) | {'B', 'S'}]
            for d in tries:
                d = tuple(sorted(d))
                f = finders.get((d, over))
                if f is None:
                    f = finders[d, over] = Finder([probes[i] for i in over], d)
                e = f.find(values)
                if e is not None:
                    return e
            return None

        numbers = [have[i][2] if i in have else 0 for i in idx]
        count = expression(numbers)
        if count is None:
            count, off = Finder(sub, ('B', 'S')).nearest(numbers) if 0 not in numbers else ('%d' % max(numbers), 1.)
            unknown = max(unknown, off)
        ranks = {len(have[i][0]) for i in where}
        dims = None
        elements = [math.prod(have[i][0]) for i in where]
        if len(ranks) == 1:
            dims = [expression([have[i][0][d] for i in where], where) for d in range(ranks.pop())]
        if dims is None or None in dims:
            e = expression(elements, where)
            if e is None:
                near = [f.nearest(elements) for (d, over), f in finders.items() if d and over == where] or [Finder(sub, ('B', 'S')).nearest(elements)]
                e, off = min(near, key=lambda x: x[1])
                unknown = max(unknown, off)
            dims = [e]
        parts = [d for d in dims if d != '1']
        text = '*'.join(sorted(parts, key=lambda x: (x not in ('B', 'S'), x)))
        if count != '1':
            text = (text + '*' if text else '') + count
        width = 'D' if k[0] == dtype else SIZES.get(k[0], '4')
        if sizes.max() > 0:
            unit = ELEMENT[dtype] if width == 'D' else int(width)
            exact = width if all(have[i][1] == math.prod(have[i][0]) * unit for i in where) else None
            if exact is None:  # a part of a larger storage
                ratio = np.median([have[i][1] / max(1, math.prod(have[i][0])) / unit for i in where])
                text = term(float(ratio), text or '1')
            terms[(width, text)] = terms.get((width, text), 0) + 1
    by = {}
    for (width, text), n in terms.items():
        by.setdefault(width, []).append(('%d*' % n if n > 1 else '') + text if text else str(n))
    out = '+'.join('%s*(%s)' % (w, '+'.join(ts)) if len(ts) > 1 else '%s*%s' % (w, ts[0]) for w, ts in sorted(by.items(), reverse=True))
    return out, unknown


class Values(dict):
    pass


def condition(probes, keys, reached):
    """What is 1 for the probes that reach a place and 0 for the others; None where all do, or it is not found."""
    if 0. not in reached:
        return None
    f = Finder(probes, [k for k in keys if isinstance(probes[0].flat.get(k), (bool, int, str, type(None)))])
    return next((k for k, v in f.atoms.items() if (v == reached).all()), None)


def solve(T, probes, owner, good, dtype):
    keys = sorted({q for k in good for q in (k if isinstance(k, tuple) else (k,))})
    places = collections.Counter(p.peak_place for p in probes)
    looks = [p.look(set(places)) for p in probes]
    groups = {}
    for place in places:
        share = {}
        for lk in looks:
            if place in lk:
                total, live, _ = lk[place]
                for x in live:
                    share[x[:3]] = max(share.get(x[:3], 0), x[4] / total)
        for i, lk in enumerate(looks):
            if place not in lk:
                continue
            total, live, early = lk[place]
            live = [x for x in live if share[x[:3]] >= .003]
            sig = (tuple(sorted({x[:3] for x in live})), early)
            groups.setdefault((place, sig), {})[i] = live
    rows = []
    for (place, sig), sets in groups.items():
        idx = tuple(sets)
        peaks = [i for i in idx if probes[i].peak_place == place]
        if not peaks or len(idx) < 4:
            continue
        expr, unknown = row_of(probes, sets, idx, owner, keys, dtype)
        if unknown > .25 and len(idx) < 8:
            continue
        when = condition(probes, keys, [float(place in lk) for lk in looks])
        if when is not None:
            expr = '%s*(%s)' % (when, expr)
        errors = []
        for i in idx:
            real = looks[i][place][0]
            errors.append(evaluate(expr, probes[i].flat, ELEMENT[dtype]) / real if real else 1)
        rows.append(dict(module=place[0], line='%s:%d' % place[1:], early=sig[1], expr=expr, runs=len(idx), peaks=len(peaks), off=round(unknown, 3),
                         worst=[round(min(errors), 3), round(max(errors), 3)]))
    return keys, rows


def quality(rows, probes, dtype):
    """Estimated over measured, of each probe."""
    out = []
    for p in probes:
        got = max((evaluate(r['expr'], p.flat, ELEMENT[dtype]) - (p.cache_bytes if r['early'] else 0) for r in rows), default=0)
        out.append(got / p.peak if p.peak > 0 else 1)
    return out


def cost(ratios):
    return sum(min(3, abs(math.log(max(r, .05)))) * (3 if n == 0 else 1) for n, r in enumerate(ratios))


def prune(rows, probes, dtype):
    """Drops rows without which the estimates are as good: a place that a configuration lacks makes them too large."""
    best = cost(quality(rows, probes, dtype))
    for r in sorted(rows, key=lambda r: r['peaks']):
        less = [x for x in rows if x is not r]
        c = cost(quality(less, probes, dtype)) if less else 1e9
        if c <= best + .01:
            rows, best = less, c
    return rows


# Rows are held against HELD other configurations; those outside of LEAST to MOST are added to the probes, in ROUNDS at most.
HELD, LEAST, MOST, ROUNDS = 5, .95, 1.1, 5


def in_32_bits(T, probes, owner):
    """The same in 32 bits, where casts to them make no copy."""
    wide, wide_owner = [], []
    start = time.process_time()
    for n, p in enumerate(probes):
        if time.process_time() - start > 5:
            break
        try:
            wide.append(T.run(p.over, p.flat['B'], p.flat['S'], torch.float32))
            wide_owner.append(owner[n])
        except Exception:
            if n == 0:
                break
    return wide, wide_owner


def measure(kind, t, out, verbose=False):
    T = Type(kind, t)
    probes, owner, good, loads, info = explore(T)
    start = time.process_time()
    rnd = random.Random(2)
    for left in reversed(range(ROUNDS)):
        keys, rows = solve(T, probes, owner, good, 'bfloat16')
        found = len(rows)
        rows = prune(rows, probes, 'bfloat16')
        held = others(T, probes[0], good, rnd, HELD, loads)
        ratios = quality(rows, held, 'bfloat16')
        wrong = [p for p, r in zip(held, ratios) if not LEAST <= r <= MOST]
        if not wrong or not left or time.process_time() - start > 8:
            break
        probes += wrong
        owner += [None] * len(wrong)
    info['held'] = sorted(round(r, 3) for r in ratios)
    info['wrong'] = [({k: v for k, v in p.over.items() if v != probes[0].over.get(k)}, p.flat['B'], p.flat['S'], round(r, 3))
                     for p, r in zip(held, ratios) if not LEAST <= r <= MOST]
    q = quality(rows, probes, 'bfloat16')
    start = time.process_time()
    wide, wide_owner = in_32_bits(T, probes, owner)
    rows32 = []
    if wide:
        _, rows32 = solve(T, wide, wide_owner, good, 'float32')
        rows32 = prune(rows32, wide, 'float32')
        if cost(quality(rows, wide, 'float32')) <= cost(quality(rows32, wide, 'float32')) + .01:
            rows32 = []  # those of 16 bits are as good
        q32 = sorted(quality(rows32 or rows, wide, 'float32'))
        info['quality32'] = [round(q32[n * (len(q32) - 1) // 10], 3) for n in (0, 1, 5, 9, 10)]
        held, _ = in_32_bits(T, held, [None] * len(held))
        info['held32'] = sorted(round(r, 3) for r in quality(rows32 or rows, held, 'float32'))
    s = sorted(q)
    info.update(solve=round(time.process_time() - start, 1), places=found, base=round(q[0], 3),
                quality=[round(s[0], 3), round(s[len(s) // 10], 3), round(s[len(s) // 2], 3), round(s[len(s) * 9 // 10], 3), round(s[-1], 3)])
    nested = {k: v['model_type'] for k, v in T.base.items() if isinstance(v, dict) and v.get('model_type')}
    names = other_names(T, {q for r in rows + rows32 for q in used(r['expr'])})
    result = dict(names=names, nested=nested, type=t, kind=kind, arch=T.arch, info=info, keys=keys,
                  absent=absent(T, probes, rows + rows32, keys), rows=rows, rows32=rows32)
    with open('%s/%s.%s.json' % (out, kind, t), 'w') as f:
        json.dump(result, f)
    if verbose:
        for r in rows + rows32:
            print(r)
    print(kind, t, T.arch, 'rows', len(rows), info, flush=True)


def used(expr):
    """The names in an expression."""
    return {k for k, _ in compiled(expr)[1]} - {'B', 'S', 'D'}


def absent(T, probes, rows, keys):
    """What the class gives the keys of the rows where the configuration has none: {key: expression}."""
    out, left = {}, {k for r in rows for k in used(r['expr'])}
    while left:
        k = left.pop()
        sub = [p for p in probes if k not in p.over]
        values = [p.flat.get(k) for p in sub]
        if values and isinstance(values[0], str):
            out[k] = values[0]
            continue
        if any(v is not None and not isinstance(v, (int, float)) for v in values):
            continue
        values = [float(v or 0) for v in values]
        if sub and len(set(values)) == 1 and k not in probes[0].over:
            e = '%.6f' % values[0]
            e = e.rstrip('0').rstrip('.')
        else:
            first, names = T.base, k.split('.')
            for n in names:
                n, _, item = n.partition('[')
                first = (first or {}).get(n)
                first = first[int(item[:-1])] if item and first else first
            e = None
            if sub:
                e = Finder(sub, [q for q in keys if q != k and q.rpartition('.')[0] == k.rpartition('.')[0]]).find(values)
            if e is None and isinstance(first, (int, float)):
                e = '%g' % first
        if e is None:
            continue
        out[k] = e
        left |= used(e) - set(out)
    return out


def other_names(T, keys):
    """Pairs of a key of the rows and a name that the configuration may have for it."""
    found = []

    def look(c, prefix):
        found.extend((prefix + own, prefix + other) for other, own in (getattr(type(c), 'attribute_map', None) or {}).items())
        for k, v in vars(c).items():
            if isinstance(v, transformers.PretrainedConfig):
                look(v, prefix + k + '.')

    look(transformers.AutoConfig.for_model(T.t), '')
    return sorted(x for x in found if x[0] in keys)


def types(words):
    for w in words:
        kind, _, t = w.partition('.')
        for x in ([t] if t else getattr(auto, MAPS[kind])):
            yield kind, x


def recorded(kind, t):
    """Peaks of a type's own configuration, with few layers, and of one with other values, beside weights and cache."""
    T, rnd = Type(kind, t), random.Random('%s.%s' % (kind, t))
    first_run(T, False)
    own = T.few
    flat = T.run(own, 1, 256).flat
    loads = [(own, 1, 1000, 'bfloat16'), (own, 2, 500, 'float32')]
    for _ in range(12):
        o = dict(own)
        for k, v in flat.items():
            if type(v) is int and v > 3 and k not in 'BS' and not LAYERS.search(k) and rnd.random() < .4:
                o[k] = rnd.choice([v * 2, v * 4, v // 2, v * 3])
        B, S = rnd.choice([(1, 700), (2, 1500), (3, 512), (4, 2048)])
        loads.append((o, B, S, rnd.choice(['bfloat16', 'bfloat16', 'float32'])))
    found = []
    for o, B, S, dtype in loads:
        try:
            p = T.run(o, B, S, getattr(torch, dtype))
            c, _ = T.build(o)
        except Exception:
            continue
        if not has_groups(p.flat):
            continue
        config = dict(c.to_diff_dict(), architectures=[T.arch], dtype=dtype, model_type=t)
        config = json.loads(json.dumps(config, default=str))
        found.append(dict(name='%s.%s' % (kind, t), config=config, batch=B, tokens=S, peak=p.peak))
        if o is not own:
            break
    return found


def record(path, words):
    """Adds these types to what was recorded, or measures them again."""
    old = []
    if os.path.exists(path):
        with lzma.open(path, 'rt') as f:
            old = [json.loads(x) for x in f]
    for kind, t in types(words):
        def child(pipe):
            json.dump(recorded(kind, t), pipe)
        rows = apart(child)
        print(kind, t, len(rows or []), flush=True)
        if rows:
            old = [x for x in old if x['name'] != '%s.%s' % (kind, t)] + rows
            with lzma.open(path, 'wt') as f:
                f.writelines(json.dumps(x, sort_keys=True) + '\n' for x in old)


def apart(child):
    """What a function writes as JSON, run in a process of its own; None if it fails."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        torch.set_num_threads(1)
        with os.fdopen(write, 'w') as f:
            try:
                child(f)
            except BaseException as e:
                print(type(e).__name__, str(e)[:150].replace('\n', ' '), flush=True)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as f:
        text = f.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else None


def main(args):
    if args[0] == '--record':
        signal.signal(signal.SIGPROF, alarm)
        gc.collect()
        gc.freeze()
        return record(args[1], args[2:])
    verbose = '-v' in args
    out, *words = [a for a in args if a != '-v']
    os.makedirs(out, exist_ok=True)
    gc.collect()
    gc.freeze()  # the children need not look through what was imported
    for kind, t in types(words):
        path = '%s/%s.%s.json' % (out, kind, t)
        if os.path.exists(path) and not verbose:
            continue
        pid = os.fork()
        if pid == 0:
            torch.set_num_threads(1)
            signal.signal(signal.SIGPROF, alarm)
            try:
                measure(kind, t, out, verbose)
            except BaseException as e:
                if verbose:
                    raise
                with open(path, 'w') as f:
                    json.dump(dict(type=t, kind=kind, error='%s: %s' % (type(e).__name__, str(e)[:300])), f)
                print(kind, t, type(e).__name__, str(e)[:150].replace('\n', ' '), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)


if __name__ == '__main__':
    main(sys.argv[1:])
